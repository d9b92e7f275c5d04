// NodeFiles: the files of one node in shared memory: lock, segment, directory, keys. The owner's process takes over those that its last
// life has left, if they are whole and of the configured sizes: what they hold is served again, and clients that map them go on
// reading. Files that are damaged, or of other sizes, are replaced, once all that can refuse new ones has been asked. Files that this
// process cannot open or map may be whole: they stay, and it ends. Either way, once the lock is ours the lease in the old directory is
// set to 0 first, so that clients that still map it serve nothing until the master has heard of us; a replacement is always a new
// inode, so that they keep what they hold.
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
  // Ends the serving lease. The files stay for the next life if there are values in them; without, or after discard(), they are
  // removed. Clients that map them keep what they hold.
  ~NodeFiles();
  void discard() { discarded_ = true; }
  // All files are there, the socket too: from here on they are watched.
  Error complete();
  // Which file is not what its name leads to any more; any thread. Then this process has to end. The lock: the node is another's, or
  // may become that at any moment. A file of values: they cannot be adopted, and are dropped. The socket alone: the next life adopts.
  struct Loss {
    Error error;
    enum class What { nothing, socket, values, lock } what = What::nothing;
  };
  Loss look() const;
  // What bears the node's names is not touched any more, and nothing is served from here.
  void disown();
  // The directory is that of the last life.
  bool adopted() const { return adopted_; }

  const shm::Paths& paths() const { return paths_; }
  const std::string& node() const { return node_; }
  int group() const { return group_; }
  std::string file(const std::string& name) const { return paths_.file(node_, name); }

  // Says in the header what clock this process has; it gets another one when it is restored from a checkpoint.
  void noteClock();

  shm::DirectoryHeader& header() { return *memory_.header; }
  shm::SegmentHeader& segmentHeader() { return *reinterpret_cast<shm::SegmentHeader*>(segmentMap_.data()); }
  shm::DirectoryWriter& directory() { return *directory_; }
  char* segment() { return segmentMap_.data() + shm::kSegmentDataOffset; }
  uint64_t segmentBytes() const { return shape_.segmentBytes; }
  // The life that the directory had served as, if its files were replaced. 0: they were taken over, or there were none.
  Incarnation replacedLife() const { return adopted_ ? Incarnation() : lastLife_; }
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
  bool ours_ = false;  // the files are of this life: adopted, or nothing is left of older ones
  bool adopted_ = false;
  bool discarded_ = false;
  bool disowned_ = false;
  shm::NamedFiles lockName_, valueNames_, socketName_;
};

}  // namespace fluxon::owner
