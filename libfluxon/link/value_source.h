// The source's side of any link to other hosts: what peers may read. That is the values of the owner's directory, which the link finds
// and holds as any client of the host does, and extents that the control thread has exported. An extent may be exported while its bytes
// are still coming, in order: those below `ready` are there. The link's thread.
//
//   coming ── advance() to its length ──► whole
//     │                                     │ unpublish(), from each of the three
//     └── fail() ──► failed                 ▼
//                                       withdrawn ── its last reader has ended ──► gone: withdrawn()
//
// Invariants
//   1. The bytes of a Reading stay what they are until end(): a hazard word holds a value, the count of readers an export.
//   2. No request finds an export that was withdrawn. The export ends with its last reader; withdrawn() reports that.
//   3. The link reads nothing at or above `ready`. changed() tells it when requests for such bytes may have an answer.
//   4. The link calls end() once for each Reading that begin() returned with ok, when no operation reads the bytes any more: after a send
//      has completed, or after the connection to a peer that is gone has been torn down and its operations have completed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/ids.h"
#include "base/result.h"
#include "shm/client_format.h"
#include "shm/directory_view.h"

namespace fluxon::link {

// What a peer asks for: a part of a value or of an export. `offset` and `length` lie within `valueBytes`.
struct ValuePart {
  std::string_view key;
  uint64_t keyHash;
  PutId putId;
  uint64_t exportId;  // 0: the value of the key; else key, keyHash and putId mean nothing
  uint64_t valueBytes;
  uint64_t offset;
  uint64_t length;
};

struct Reading {
  Code code = Code::ok;  // not ok: there is nothing to read, and nothing to end
  const char* data = nullptr;
  uint64_t length = 0;
  shm::HazardTable::Ref hazard;
  uint64_t exportId = 0;
};

class ValueSource {
 public:
  struct Events {
    std::function<void(uint64_t exportId)> withdrawn;  // nobody reads it any more
    std::function<void(uint64_t exportId)> changed;    // requests that it had nothing for may have an answer now
  };
  ValueSource(const shm::DirectoryView& view, shm::ClientFile& hazards, Events events)
      : view_(view), hazards_(hazards.hazards), events_(std::move(events)) {}

  // miss: another version, another length, or nothing; unavailable: not serving; tooMany: no hazard word is free; system: the bytes
  // of the export will not come. Nothing: they have not come yet, and there is nothing to end.
  std::optional<Reading> begin(const ValuePart&);
  void end(const Reading&);

  void publish(uint64_t exportId, const char* data, uint64_t bytes, uint64_t ready);
  // These two do nothing to an export that was withdrawn.
  void advance(uint64_t exportId, uint64_t ready);
  void fail(uint64_t exportId);
  void unpublish(uint64_t exportId);

 private:
  struct Export {
    const char* data;
    uint64_t bytes;
    uint64_t ready;  // of them, from the beginning
    uint64_t readers = 0;
    bool failed = false;
    bool withdrawn = false;
  };
  Export* find(uint64_t exportId);
  std::optional<Reading> beginExport(const ValuePart&);

  const shm::DirectoryView view_;
  shm::HazardTable hazards_;
  const Events events_;
  std::unordered_map<uint64_t, Export> exports_;
};

}  // namespace fluxon::link
