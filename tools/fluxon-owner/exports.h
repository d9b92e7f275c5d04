// Exports: puts that clients filled here and whose values are to lie at an owner of another host, which fetches the bytes from here.
//
// Life of an export (its slot is pending all the while):
//   readable, the put's submit ──the put has ended, or the term──► ending ──nobody reads it any more──► over: the slot is free
//   Peers may read the bytes until the host reports that none does (unexported).
// One thread.
#pragma once

#include <map>
#include <set>

#include "key_controls.h"
#include "retirement.h"

namespace fluxon::owner {

class Exports {
 public:
  Exports(shm::DirectoryWriter& directory, Host& host, const Standing& standing, Retirement& retirement, KeyControls& controls)
      : directory_(directory), host_(host), standing_(standing), retirement_(retirement), controls_(controls) {}

  void begin(ExportId, uint32_t slot, Time now);
  void end(ExportId);
  void unexported(ExportId, Time now);
  // The slots that peers may still read, also after endTerm(), which ends their exports.
  std::set<uint32_t> slots() const;
  void endTerm();

  size_t count() const { return exports_.size(); }
  Time oldest(Time now) const;
  uint64_t begun() const { return begun_; }

 private:
  struct Export {
    enum class State { readable, ending } state;
    uint32_t slot;
    Time since;
  };
  shm::DirectoryWriter& directory_;
  Host& host_;
  const Standing& standing_;
  Retirement& retirement_;
  KeyControls& controls_;
  std::map<ExportId, Export> exports_;
  uint64_t begun_ = 0;
};

}  // namespace fluxon::owner
