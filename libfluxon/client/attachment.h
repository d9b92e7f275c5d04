// Attachment: one client attached to one owner of its host: the mappings of directory, keys and segment, the client's own file,
// the ring, and the holders and grants that point into them.
//
// Life:   open ──retire()──► retired, in the graveyard ──nobody uses it──► destroyed
// An attachment is retired when its owner has ended or its client closes. Its mappings, and with them the lock on the client
// file, live on while somebody reads, so the owner keeps the extents.
//
// Invariants
//   1. Users are the holders (counted in the hazard table) and users_ (grants, held words, calls under way, the client itself).
//   2. Ending a use of an attachment that is not retired touches it no more afterwards. Of a retired one it happens under the
//      graveyard's lock, with a sweep; one that saw `not retired` and was overtaken by retire() is found by the next sweep.
//   3. Ranges that an owner names are checked against the segment before they become pointers.
//   4. The owner's clock is ours, or there is no attachment: its lease could not be judged.
//   5. An answer of the owner is taken by the request that it names. One that nobody waits for any more is thrown away by the next.
// Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/command_ring.h"
#include "client/fork.h"
#include "shm/directory_view.h"
#include "shm/hazard_table.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"

namespace fluxon::client {

class Attachment {
 public:
  enum class As { client, owner };
  // One message to the owner; blocks until its answer or the deadline. Owned by one reference of the caller's, ended by retire().
  // `reached` is called when an owner listens, before it is asked for anything.
  static Result<Attachment*> attach(const shm::Paths&, const std::string& node, const std::string& name, As, Time deadline,
                                    const std::function<void()>& reached = {});

  const std::string& node() const { return node_; }
  const shm::DirectoryView& view() const { return view_; }
  shm::HazardTable& hazards() { return *hazards_; }
  shm::ClientFile& file() { return *reinterpret_cast<shm::ClientFile*>(fileMap_.data()); }
  CommandRing& ring() { return *ring_; }
  // True: the owner has ended. One that is killed counts as alive until its lease has run out, or a call has waited for it.
  bool dead() const { return ring_->suspect() && ring_->dead(); }
  // False in a child of the process that attached: nothing here may be touched.
  bool alive() const { return forkGeneration_ == forkGeneration(); }

  // A holder by hazard ends.
  void drop(shm::HazardTable::Ref);
  // Something that is not a hazard (a grant, a held word, a call under way) points here.
  void use() { users_.fetch_add(1, std::memory_order_relaxed); }
  void unuse();
  // The caller's reference ends: no new holder is made here. Destroys with the last user.
  void retire();
  // Destroys retired attachments that nobody uses any more.
  static void sweep();

  // The place of a grant, writable. Makes the writable mapping at the first call (one message).
  Result<char*> writable(uint64_t offset, uint64_t bytes, Time deadline);
  // Fills page tables of the place of a grant, until the deadline: a first touch costs a fault per page.
  void populate(const char* place, uint64_t bytes, Time deadline);
  // Maps all pages of the read-only segment now, however long that takes.
  void prefault();

 private:
  struct Graveyard;
  static Graveyard& graveyard();

  Attachment() = default;
  ~Attachment();
  Error exchange(shm::AttachKind, const std::string& name, Time deadline, std::vector<shm::Descriptor>& descriptors);
  Error confirmClock(Time deadline);
  Error map(const std::vector<shm::Descriptor>& descriptors, Time deadline);
  Error mapWritable(Time deadline);

  std::string node_;
  uint64_t forkGeneration_ = forkGeneration();
  shm::Descriptor socket_, bell_;
  shm::MappedFile fileMap_, directoryMap_, keysMap_, segmentMap_, writableMap_;
  shm::DirectoryView view_;
  std::unique_ptr<shm::HazardTable> hazards_;
  std::unique_ptr<CommandRing> ring_;
  std::atomic<uint64_t> users_{1};
  std::atomic<bool> retired_{false};
  Attachment* nextRetired_ = nullptr;
  uint64_t number_ = 0;    // of the last request
  Duration clockWidth_{};  // between our two readings around the owner's, at the last answer
  std::mutex writableMutex_;
  std::condition_variable writableDone_;
  bool makingWritable_ = false;  // some thread does
  std::atomic<char*> writableBase_{nullptr};
  std::vector<std::atomic<bool>> populated_;  // per granule of the writable mapping
};

}  // namespace fluxon::client
