// Copies of what the files of a node in /dev/shm say, made with read(), so that neither a living daemon nor a damaged or shrinking
// file can harm the reader. Nothing is believed before it is checked. Formats: directory_format.h, client_format.h, ssdd_format.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "process_ids.h"
#include "shm/client_format.h"
#include "shm/directory_format.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"
#include "ssdd_report.h"

namespace fluxon::ctl {

// Names of the nodes whose owner runs here, "n0, n1".
std::string runningNodes(const shm::Paths& paths);
// Names of the nodes that have a folder here, or `denied` where they are another user's.
Result<std::vector<std::string>> nodesOf(const shm::Paths& paths);

// A slot at one moment.
struct SlotCopy {
  uint64_t word, hash, putId, offset, payloadBytes, key, writer, operation;
  uint32_t generation() const { return shm::generationOf(word); }
  shm::SlotState state() const { return shm::stateOf(word); }
};
static_assert(sizeof(SlotCopy) == sizeof(shm::DirectorySlot));

// "committed"; "invalid" for a value that is none.
std::string toString(shm::SlotState state);

// The directory of a node, with its keys.
class DirectoryFile {
 public:
  // `unavailable`: the node has no directory; `corrupt`: which file does not hold together, and why.
  static Result<DirectoryFile> open(const shm::Paths& paths, const std::string& node);

  uint32_t slotCount() const { return slotCount_; }
  Incarnation incarnation() const { return incarnation_; }
  int64_t leaseUntilNs() const { return leaseUntilNs_; }
  // What the owner's clock reads now: it may be in another time namespace than we.
  Time ownersNow() const;
  Incarnation ssdLife() const { return ssdLife_; }
  // Does the owner that has joined with this incarnation, or will, serve it?
  bool isServedBy(Incarnation incarnation) const { return serving_ == incarnation || life_ == incarnation; }
  uint64_t segmentBytes() const { return segmentBytes_; }  // capacity for values

  struct Entry {
    SlotCopy slot;
    std::string key;
  };
  // Slot and key, belonging together also while the owner changes them. nullopt: outside the table, or it never holds together.
  std::optional<Entry> entry(uint32_t index) const;
  // Calls each(index, slot) for the slots that are not free.
  template <class Each>
  Error forEach(Each each) const {
    for (uint32_t first = 0; first < slotCount_; first += kSlotsAtATime) {
      std::vector<SlotCopy> slots;
      if (Error error = read(first, slots); !error.ok()) return error;
      for (uint32_t i = 0; i < slots.size(); ++i) {
        if (slots[i].state() != shm::SlotState::free) each(first + i, slots[i]);
      }
    }
    return {};
  }

 private:
  static constexpr uint32_t kSlotsAtATime = 4096;
  Error read(uint32_t first, std::vector<SlotCopy>& slots) const;

  shm::Descriptor directory_, keys_;
  uint64_t slotsOffset_ = 0, keysBytes_ = 0, segmentBytes_ = 0;
  uint32_t slotCount_ = 0;
  Incarnation incarnation_;
  int64_t leaseUntilNs_ = 0, bootTimeOffsetNs_ = 0;
  Incarnation ssdLife_, serving_, life_;
};

// A client's file.
struct ClientCopy {
  ClientId id;
  std::string name;
  ProcessId pid;
  std::vector<uint64_t> mappedBy;         // the processes that keep its words, if it is alive: itself, and children that it has forked
  bool alive = false;                     // its lock is held
  Incarnation incarnation;                // of the owner that made the file
  std::unique_ptr<shm::ClientFile> file;  // all but the payloads
};

// Ids of the client files of a node, in order.
std::vector<ClientId> clientsOf(const shm::Paths& paths, const std::string& node);
// nullopt: it is only being made, or gone.
Result<std::optional<ClientCopy>> readClient(const shm::Paths& paths, const std::string& node, ClientId id, Mappers& mappers);

// What the ssdd of a node shows of itself.
struct SsddCopy {
  SsddReport report;
  ProcessId pid;
  std::optional<bool> alive;  // it, or the kernel for it, holds a shard file; nullopt: its folders cannot be looked into
  // The owner runs, and its directory names the life of what ssdd has; nullopt: its lock cannot be seen, or it has no sound directory.
  std::optional<bool> attached;
};
// nullopt: no ssdd has attached to the owner, or one is just attaching.
Result<std::optional<SsddCopy>> readSsdd(const shm::Paths& paths, const std::string& node);

}  // namespace fluxon::ctl
