// The master's Operator interface (schema/master.capnp) and the HTTP pages of processes, as plain values and blocking calls. The only
// home of KJ in fluxonctl. Each call ends by its timeout with `timedOut`; a master that is not there gives `unavailable`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/ids.h"
#include "base/result.h"
#include "shm/paths.h"

namespace fluxon::ctl {

struct MasterStatus {
  std::string cluster, clusterId;
  Term term;
  Incarnation master;
  uint64_t pid = 0;
  std::string http, listen;  // empty: off
  uint64_t leaseMs = 0, keys = 0, inFlightPuts = 0, uptimeMs = 0;
  bool recovering = false;
};

struct MemberInfo {
  std::string node, state;
  Incarnation incarnation;
  uint64_t pid = 0;
  std::string http;  // empty: off
  int64_t leaseLeftMs = 0;
  uint64_t segmentBytes = 0, freeBytes = 0, largestFree = 0, routedBytes = 0, leasedBytes = 0, reservedBytes = 0, inFlightBytes = 0,
           retiredBytes = 0, replicas = 0, waitingPuts = 0;
  std::string link, label;  // empty: off, none
  Incarnation ssdLife;      // of what is on its SSD; false: it has none
  uint64_t ssdReplicas = 0;
};

struct RouteInfo {
  std::string key;
  PutId putId;
  uint64_t bytes = 0, lease = 0, inFlight = 0;
  std::vector<std::string> nodes, ssdNodes;  // with a replica in memory, on SSD
};

struct LeaseInfo {
  KeyLeaseId id;
  uint64_t ttlMs = 0, leftMs = 0, keys = 0;
};

class MasterClient {
 public:
  // To the master that the configuration names on another host, else to the socket of this host's.
  static Result<std::unique_ptr<MasterClient>> connect(const Config::Common&, const shm::Paths& paths, uint32_t timeoutMs);
  ~MasterClient();

  Result<MasterStatus> status();
  Result<std::vector<MemberInfo>> members();
  // Up to `limit` routes after `after`; fewer only at the end.
  Result<std::vector<RouteInfo>> routes(const std::string& prefix, const std::string& after, uint32_t limit);
  // Up to `limit` key leases after `after`, by id; fewer only at the end.
  Result<std::vector<LeaseInfo>> leases(KeyLeaseId after, uint32_t limit);
  enum class Drain { begin, cancel };
  Error drain(const std::string& node, Drain);
  // `node` empty: all.
  Error evict(const std::string& node, uint32_t percent);
  // Body of http://<address><path>.
  Result<std::string> page(const std::string& address, const std::string& path);

 private:
  struct State;
  explicit MasterClient(std::unique_ptr<State> state);
  static Error connectLocal(State&, const shm::Paths&);
  static Error connectRemote(State&, const Config::Common&);
  std::unique_ptr<State> state_;
};

}  // namespace fluxon::ctl
