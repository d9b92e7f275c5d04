// NodeFiles: the files of one node in shared memory: lock, segment, directory, keys.
//
// The owner takes over the files of its last life if they are whole and of the configured sizes: it serves their values again, and clients
// that map them go on reading. It replaces files that are damaged or of other sizes, but only after it has asked everything that can
// refuse new ones. Files that it cannot open or map may be whole: it leaves them, and ends.
//
// In each case the owner, once it has the lock, first sets the lease in the old directory to 0, so that clients that still map it serve
// nothing until the master has heard of this life. A replacement is always a new inode, so such clients keep what they hold.
#pragma once

#include <memory>
#include <string>

#include "base/config.h"
#include "base/result.h"
#include "shm/directory_view.h"
#include "shm/directory_writer.h"
#include "shm/fault_guard.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"
#include "shm/segment_format.h"

namespace fluxon::owner {

class NodeFiles {
 public:
  // Blocks while space is reserved. `group`: gid that may read, or -1.
  static Result<std::unique_ptr<NodeFiles>> create(const shm::Paths&, const std::string& node, const Config::Owner&, int group,
                                                   Incarnation);
  // Ends the serving lease. Leaves the files for the next life if there are values in them; removes them if there are none, or after
  // discard(). Clients that map them keep what they hold.
  ~NodeFiles();
  void discard() { atEnd_ = AtEnd::discard; }
  // All files are there, the socket too. From here on look() watches them.
  Error complete();
  // Which file its name does not lead to any more; any thread. Then this process must end. The lock: the node is another owner's, or may
  // become that at any moment. A file of values: no life can adopt them, so they are dropped. The socket alone: the next life adopts.
  struct Loss {
    Error error;
    enum class What { nothing, socket, values, lock } what = What::nothing;
  };
  Loss look() const;
  // This process has lost the node: it touches no file of the node's names any more, and serves nothing.
  void disown();
  // The directory is that of the last life.
  bool adopted() const { return whose_ == Whose::adopted; }

  const shm::Paths& paths() const { return paths_; }
  const std::string& node() const { return node_; }
  int group() const { return group_; }
  std::string file(const std::string& name) const { return paths_.file(node_, name); }

  // Notes in the header which clock this process has; a restore from a checkpoint gives it another one.
  void noteClock();

  shm::DirectoryHeader& header() { return *memory_.header; }
  shm::SegmentHeader& segmentHeader() { return *reinterpret_cast<shm::SegmentHeader*>(segmentMap_.data()); }
  shm::DirectoryWriter& directory() { return *directory_; }
  char* segment() { return segmentMap_.data() + shm::kSegmentDataOffset; }
  uint64_t segmentBytes() const { return shape_.segmentBytes; }
  // The life as which a directory had served that this process replaced. 0: it took the files over, or there were none.
  Incarnation replacedLife() const { return adopted() ? Incarnation() : lastLife_; }
  // As a client sees it.
  shm::DirectoryView view() const;
  uint64_t fileBytes() const { return segmentMap_.bytes() + directoryMap_.bytes() + keysMap_.bytes(); }

  // Touches pages of the segment from `at` on; returns how far it got. Blocks for some ms.
  uint64_t populateStep(uint64_t at);

 private:
  NodeFiles(shm::Paths paths, std::string node, int group) : paths_(std::move(paths)), node_(std::move(node)), group_(group) {}
  Error takeOver(const Config::Owner&, Incarnation);
  Error makeFiles(Incarnation);
  uint64_t bytesOnDisk() const;
  Error mayReplace(const Config::Owner&) const;
  bool there(const char* name) const;
  Error adoptFiles();
  Error stopLastLife();

  // Of the node's last life: what it had seen of its master.
  uint64_t clusterId_ = 0, highestTerm_ = 0, highestMaster_ = 0;
  Incarnation lastLife_;

  shm::Paths paths_;
  std::string node_;
  int group_;
  shm::LockFile lock_;
  shm::MappedFile segmentMap_, directoryMap_, keysMap_;
  shm::FaultGuard segmentGuard_, directoryGuard_, keysGuard_;  // without these files there is nothing to serve
  shm::DirectoryWriter::Shape shape_;
  shm::DirectoryWriter::Memory memory_{};
  std::unique_ptr<shm::DirectoryWriter> directory_;
  Incarnation life_;
  // Adopted: taken over from the last life. Fresh: nothing is left of older ones.
  enum class Whose { lastLifes, adopted, fresh } whose_ = Whose::lastLifes;
  enum class AtEnd { keep, discard, disown } atEnd_ = AtEnd::keep;
  shm::NamedFiles lockName_, valueNames_, socketName_;
};

}  // namespace fluxon::owner
