// One of every request, answer and order between owners and their master, and a registration, with every field other than its default:
// what a codec loses of them shows.
#pragma once

#include "rpc/messages.h"

namespace fluxon::rpc {

inline PutMode sampleMode() { return {PutMode::OnExisting::reject, PutMode::OnInFlight::reject, PutMode::Home::here}; }
inline Peer samplePeer() { return {"node", "host", "192.0.2.1:7", Incarnation(5)}; }
inline Exported sampleExported() { return {ExportId(7), 8192}; }

inline std::vector<Request> sampleRequests() {
  const std::vector<Version> versions{{"a", PutId(1)}, {"b", PutId(2)}};
  const std::vector<MemoryReplica> replicas{{"a", PutId(1), 4096}, {"b", PutId(2), 8192}};
  const std::vector<SsdValue> onSsd{{"c", PutId(3), 30}, {"d", PutId(4), 40}};
  const std::vector<Request::Body> bodies{
      Heartbeat{.serving = true, .touched = {4096, 8192}},
      PutStart{.key = "key", .bytes = 100, .mode = sampleMode(), .lease = KeyLeaseId(3), .timeLeftMs = 4, .onBehalfOf = "other"},
      PutDone{.put = OperationId(5)},
      PutReserved{.key = "key", .bytes = 100, .offset = 4096, .mode = sampleMode(), .lease = KeyLeaseId(3)},
      PutAbort{.put = OperationId(5)},
      Reserve{.extentBytes = 4096, .count = 3},
      Release{.offsets = {4096, 8192}},
      Dropped{.replicas = replicas},
      GetStart{.key = "key", .neighbours = NeighbourUse::none, .avoid = "other", .timeLeftMs = 4},
      GetDone{.get = OperationId(5), .code = Code::corrupt},
      StatKey{.key = "key", .timeLeftMs = 4},
      RemoveKey{.key = "key", .timeLeftMs = 4},
      CountKeys{.prefix = "k", .timeLeftMs = 4},
      ListKeys{.prefix = "k", .after = "kex", .limit = 10, .timeLeftMs = 4},
      LeaseGrant{.ttlMs = 1000},
      LeaseKeepAlive{.lease = KeyLeaseId(3)},
      LeaseRevoke{.lease = KeyLeaseId(3), .timeLeftMs = 4},
      Spread{.value = versions[0], .replicas = 2, .timeLeftMs = 4},
      InventoryPage{
          .memory = {{"a", PutId(1), 4096, 10, KeyLeaseId(3)}, {"b", PutId(2), 8192, 20, KeyLeaseId(4)}}, .ssd = onSsd, .pages = 2},
      SsdLife{.life = Incarnation(6)},
      SsdCommit{.values = onSsd},
      SsdEvicted{.values = versions},
      InvalidateDone{.order = OrderId(6)},
      ReclaimDone{.order = OrderId(6), .results = {ReclaimResult::gone, ReclaimResult::busy}},
      ReplicateDone{.order = OrderId(6), .code = Code::unavailable},
      Staged{.order = OrderId(6), .code = Code::miss},
      Unstaged{.order = OrderId(6)},
  };
  std::vector<Request> requests;
  for (const Request::Body& body : bodies) requests.push_back({OperationId(requests.size() + 1), body});
  return requests;
}

inline std::vector<Answer> sampleAnswers() {
  return {
      Done{},
      PutGranted{PutId(2), 4096, samplePeer()},
      PutElsewhere{samplePeer()},
      PutEnded{PutId(2), true},
      Reserved{{4096, 8192}},
      ReadAt{PutId(2), 100, samplePeer(), true},
      FetchFrom{PutId(2), 100, 4096, samplePeer(), sampleExported()},
      LoadHere{PutId(2), 100, 4096},
      KeyStat{PutId(2), 100, KeyLeaseId(3), {"n1", "n2"}},
      KeyCount{3},
      KeyPage{{{"a", 10, PutId(1)}, {"b", 20, PutId(2)}}},
      LeaseGranted{KeyLeaseId(3)},
      InventoryTaken{{4096, 8192}, {1, 2}},
      CopyEnded{PutId(2), true, KeyLeaseId(3)},
      SpreadEnded{2},
      SsdTaken{{1, 2}},
  };
}

// A reply with each answer, a refusal, and the orders.
inline std::vector<MasterMessage> sampleMessages() {
  std::vector<MasterMessage> messages{
      Reply{OperationId(1), Code::noSpace, "detail", {}},
      Invalidate{OrderId(6), {{"a", PutId(1)}, {"b", PutId(2)}}},
      Reclaim{OrderId(6), {{"a", PutId(1), 4096}, {"b", PutId(2), 8192}}},
      Replicate{OrderId(6), "key", PutId(2), 100, 4096, samplePeer(), sampleExported(), 4},
      Stage{OrderId(6), "key", PutId(2), 100, {ExportId(kStagedExport | 6), 4096}, 4},
      Unstage{OrderId(6), ExportId(kStagedExport | 6)},
      Leave{},
      Shrink{},
  };
  for (const Answer& answer : sampleAnswers()) messages.push_back(Reply{OperationId(1), Code::ok, {}, answer});
  return messages;
}

inline Registration sampleRegistration() {
  Registration registration;
  registration.node = "n";
  registration.hostId = "h";
  registration.incarnation = Incarnation(1);
  registration.pid = 2;
  registration.segmentBytes = 3;
  registration.maxKeys = 4;
  registration.http = "http";
  registration.link = "192.0.2.1:7";
  registration.label = "label";
  registration.ssdLife = Incarnation(7);
  registration.occupied = {{4096, 64}, {8192, 8192}};
  registration.adopts = Incarnation(5);
  registration.values = 8;
  registration.ends = {Incarnation(9), Incarnation(10)};
  registration.sent = Time{6};
  registration.protocol = 11;
  return registration;
}

}  // namespace fluxon::rpc
