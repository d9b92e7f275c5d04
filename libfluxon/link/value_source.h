// What the source's side may send: values of its own directory, found and held as any client of the host finds and holds them, and
// extents that the control thread has exported. An extent may be exported while its bytes are still coming, in order: those below
// `ready` are there. The link's thread.
//
//   coming ── advance() to its length ──► whole
//     │                                     │ unpublish(), from each of the three
//     └── fail() ──► failed                 ▼
//                                       withdrawn ── its last reader has ended ──► gone: withdrawn()
//
// Invariants
//   1. The bytes of a Reading stay what they are until end(): a hazard word holds a value, the count of readers an export.
//   2. An export that was withdrawn is found by nobody; it ends with its last reader, which withdrawn() tells.
//   3. Nothing at or above `ready` is ever read. Who asked for it hears of every change by changed().
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "link/request_parser.h"
#include "shm/directory_view.h"

namespace fluxon::link {

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
  // of the export will not come; protocol. Nothing: they have not come yet, and there is nothing to end.
  std::optional<Reading> begin(const ReadRequest&);
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
  std::optional<Reading> beginExport(const ReadRecord&);

  const shm::DirectoryView view_;
  shm::HazardTable hazards_;
  const Events events_;
  std::unordered_map<uint64_t, Export> exports_;
};

}  // namespace fluxon::link
