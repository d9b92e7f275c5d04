// Puts: the life of a put at the owner of its client, from the request for an extent to the master's decision.
//
// Life of a put (the slot's states: directory_format.h), and who owns the bytes
//   asked ──► granted ──commit──► submitted ──► committed | overwritten | refused
//     │          │ the writer fills the extent      nobody writes any more, the master decides
//     │          ├──abort, or its writer ended──► given up
//     │          └──the term ends──► orphan: still its writer's, and given up at its commit, abort or end
//     └── from the reserve there is no `asked`: the extent is here already and the master hears of the put at its commit
//   A client fills a put here even if its value shall lie at an owner of another host. At the commit this owner exports the extent, the
//   other owner fetches the bytes, and the master answers when they are readable there. Then the export ends and the extent is free.
//   How a submitted put becomes readable: publications.h.
//
// Invariants
//   1. An extent is in the directory, as granted, before its address leaves this process.
//   2. Only the client that has the grant may commit or abort it, once.
//   3. The owner commits nothing at or after the end of its serving lease.
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "base/counters.h"
#include "exports.h"
#include "publications.h"
#include "reserve.h"
#include "retries.h"

namespace fluxon::owner {

#define FLUXON_OWNER_PUT_COUNTERS(X)                                                         \
  X(puts, "fluxon_owner_puts_total", "Puts begun.")                                          \
  X(putsInline, "fluxon_owner_puts_inline_total", "Puts whose value came with the command.") \
  X(putsFromReserve, "fluxon_owner_puts_reserved_total", "Puts served from the reserve.")    \
  X(putsFailed, "fluxon_owner_puts_failed_total", "Puts that were refused or given up.")     \
  X(putBytes, "fluxon_owner_put_bytes_total", "Payload bytes of committed puts.")
struct PutCounters {
  FLUXON_COUNTERS(FLUXON_OWNER_PUT_COUNTERS)
  uint64_t putsWithoutSlot = 0;
};

class Puts {
 public:
  struct Segment {
    char* bytes;
    uint64_t size;
  };
  Puts(shm::DirectoryWriter& directory, Segment segment, Host& host, MasterCalls& calls, const Standing& standing, Retries& retries,
       KeyControls& controls, Retirement& retirement, Publications& publications, Exports& exports)
      : directory_(directory),
        segment_(segment),
        host_(host),
        calls_(calls),
        standing_(standing),
        retries_(retries),
        controls_(controls),
        retirement_(retirement),
        publications_(publications),
        exports_(exports),
        reserve_(segment.size / 32) {}

  // --- commands. A putInline brings its value.
  void start(Caller, Command, Time now);
  void commit(Caller, const Command&, Time now);
  void abort(Caller, const Command&, Time now);
  void clientGone(ClientId, Time now);

  // --- the master has answered
  void started(Call&, const rpc::Reply&, Time now);
  void decided(const Call&, const rpc::Reply&, Time now);
  // The master has made as many replicas as it could.
  void spread(const Call&, const rpc::Reply&);
  void reserved(const rpc::Reserve&, const rpc::Reply&);

  // refill() asks for what the reserve is short of; shrinkReserve() gives back what has not been used since then.
  void refill();
  void shrinkReserve(Time unusedSince);

  // A grant of an earlier life whose writer may still write.
  void adopt(uint32_t slot, Time now);
  // Grants stay with their writers, as orphans. Frees what the master was to decide about, but for what is `exported`.
  void endTerm(const std::set<uint32_t>& exported);

  size_t count() const { return puts_.size(); }
  uint64_t reserveBytes() const { return reserve_.bytes(); }
  // The oldest that is not decided, and of those that are still written; now: there is none.
  Time oldest(Time now) const;
  Time oldestGrant(Time now) const;
  const PutCounters& counters() const { return counters_; }

 private:
  enum class State { granted, orphan, submitted };
  enum class Place { here, elsewhere };  // where the value shall lie
  struct Put {
    State state = State::granted;
    Place place = Place::here;
    ClientId client;        // 0: the owner itself (an inline put)
    OperationId operation;  // putStart at the master; 0: from the reserve
    PutId putId;
    PutMode mode;
    uint8_t replicas = 0;
    KeyLeaseId lease;
    Time since{0};  // granted, or adopted
  };
  struct Grant {
    uint32_t slot;
    std::string key;
  };
  void startAt(uint64_t offset, Caller, const Command&, Time now);
  void grant(uint32_t slot, Put, Caller, const Command&, Time now);
  void refuseGrant(OperationId put, Caller, Code, const char* why);
  std::optional<Grant> granted(Caller, const Command&) const;
  void submit(uint32_t slot, Caller, Time now);
  Code finish(uint32_t slot, const Put&, const std::string& key, const rpc::Reply&, Time now);
  // The writer is done with the extent.
  void giveUp(uint32_t slot);

  shm::DirectoryWriter& directory_;
  Segment segment_;
  Host& host_;
  MasterCalls& calls_;
  const Standing& standing_;
  Retries& retries_;
  KeyControls& controls_;
  Retirement& retirement_;
  Publications& publications_;
  Exports& exports_;
  Reserve reserve_;
  std::unordered_map<uint32_t, Put> puts_;  // by slot
  PutCounters counters_;
};

}  // namespace fluxon::owner
