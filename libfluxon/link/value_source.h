// What the source's side may send: values of its own directory, found and held as any client of the host finds and holds them, and
// extents that the control thread has exported. The link's thread.
//
// Invariants
//   1. The bytes of a Reading stay what they are until end(): a hazard word holds a value, the count of readers an export.
//   2. An export that was withdrawn is found by nobody; it ends with its last reader, which withdrawn() tells.
#pragma once

#include <functional>
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
  ValueSource(const shm::DirectoryView& view, shm::ClientFile& hazards, std::function<void(uint64_t exportId)> withdrawn)
      : view_(view), hazards_(hazards.hazards), withdrawn_(std::move(withdrawn)) {}

  // miss: another version, another length, or nothing; unavailable: not serving; tooMany: no hazard word is free; protocol.
  Reading begin(const ReadRequest&);
  void end(const Reading&);

  void publish(uint64_t exportId, const char* data, uint64_t bytes);
  void unpublish(uint64_t exportId);

 private:
  struct Export {
    const char* data;
    uint64_t bytes;
    uint64_t readers = 0;
    bool withdrawn = false;
  };
  Reading beginExport(const ReadRecord&);

  const shm::DirectoryView view_;
  shm::HazardTable hazards_;
  std::function<void(uint64_t)> withdrawn_;
  std::unordered_map<uint64_t, Export> exports_;
};

}  // namespace fluxon::link
