#include "operator_server.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "rpc/codec.h"

namespace fluxon::master {
namespace {

uint32_t pageOf(uint32_t limit) {
  constexpr uint32_t kLargestPage = 1000;
  return limit == 0 ? kLargestPage : std::min(limit, kLargestPage);
}

}  // namespace

kj::Promise<void> Service::OperatorServer::members(MembersContext context) {
  const auto& members = service_.core_.members();
  auto list = context.getResults().initMembers(static_cast<unsigned>(members.size()));
  unsigned i = 0;
  for (const auto& [node, member] : members) {
    auto out = list[i++];
    const char* state = member->state == MemberState::left        ? "left"
                        : member->state == MemberState::fenced    ? "fenced"
                        : !member->connected()                    ? "silent"
                        : member->state == MemberState::reporting ? "reporting"
                        : member->draining()                      ? "draining"
                                                                  : "joined";
    out.setNode(node);
    out.setState(state);
    out.setIncarnation(member->incarnation().value);
    out.setPid(member->registration().pid);
    out.setHttp(member->registration().http);
    out.setLeaseLeftMs(member->lives() ? (*member->leaseEnd - bootTime()).ms() : 0);
    const MemberSpace& space = member->space;
    out.setSegmentBytes(space.capacity());
    out.setLink(member->registration().link);
    out.setLabel(member->registration().label);
    if (!member->lives()) continue;
    out.setFreeBytes(space.freeBytes());
    out.setLargestFree(space.largestFree());
    out.setRoutedBytes(space.bytes(Use::routed) + space.bytes(Use::reclaiming) - space.leasedBytes());
    out.setLeasedBytes(space.leasedBytes());
    out.setReservedBytes(space.bytes(Use::reserved));
    out.setInFlightBytes(space.bytes(Use::inFlight));
    out.setRetiredBytes(space.bytes(Use::unrouted));
    out.setReplicas(space.replicas());
    out.setWaitingPuts(member->shortage.waiting().size());
    out.setSsdLife(member->ssdLife->value);
    out.setSsdReplicas(member->ssdReplicas());
  }
  return kj::READY_NOW;
}

kj::Promise<void> Service::OperatorServer::routes(RoutesContext context) {
  const auto params = context.getParams();
  const uint32_t limit = pageOf(params.getLimit());
  std::vector<const KeyEntry*> page;
  service_.core_.table().list(rpc::toString(params.getPrefix()), rpc::toString(params.getAfter()), limit + 1, [&](const KeyEntry& entry) {
    page.push_back(&entry);
    return true;
  });
  const bool more = page.size() > limit;
  if (more) page.pop_back();
  auto list = context.getResults().initRoutes(static_cast<unsigned>(page.size()));
  for (unsigned i = 0; i < page.size(); ++i) {
    const KeyEntry& entry = *page[i];
    list[i].setKey(kj::arrayPtr(reinterpret_cast<const kj::byte*>(entry.key.data()), entry.key.size()));
    list[i].setPutId(entry.putId.value);
    list[i].setBytes(entry.bytes);
    list[i].setLease(entry.lease.value);
    list[i].setInFlight(static_cast<uint32_t>(entry.puts.size()));
    std::vector<std::string> nodes[2];
    for (const Replica& replica : entry.replicas) nodes[replica.medium() == Medium::ssd].push_back(replica.member->node());
    const auto fill = [](auto out, const std::vector<std::string>& names) {
      for (unsigned n = 0; n < names.size(); ++n) out.set(n, names[n]);
    };
    fill(list[i].initNodes(static_cast<unsigned>(nodes[0].size())), nodes[0]);
    fill(list[i].initSsdNodes(static_cast<unsigned>(nodes[1].size())), nodes[1]);
  }
  context.getResults().setMore(more);
  return kj::READY_NOW;
}

kj::Promise<void> Service::OperatorServer::leases(LeasesContext context) {
  const auto params = context.getParams();
  const auto& all = service_.core_.keyLeases().all();
  const auto first = all.upper_bound(KeyLeaseId(params.getAfter()));
  auto last = first;
  unsigned count = 0;
  for (const uint32_t limit = pageOf(params.getLimit()); count < limit && last != all.end(); ++count) ++last;
  auto list = context.getResults().initLeases(count);
  unsigned i = 0;
  for (auto at = first; at != last; ++at, ++i) {
    list[i].setId(at->first.value);
    list[i].setTtlMs(static_cast<uint64_t>(at->second.ttl.ms()));
    list[i].setLeftMs(static_cast<uint64_t>(std::max<int64_t>(0, (at->second.end - bootTime()).ms())));
    list[i].setKeys(at->second.keys.size());
  }
  return kj::READY_NOW;
}

kj::Promise<void> Service::OperatorServer::drain(DrainContext context) {
  const std::string node = rpc::toString(context.getParams().getNode());
  const bool cancel = context.getParams().getCancel();
  const Error error = cancel ? service_.core_.undrain(node) : service_.core_.drain(node, bootTime());
  log::info("drain of node " + node + ": " + (!error.ok() ? error.message() : cancel ? "taken back" : "begun"));
  context.getResults().setCode(static_cast<uint16_t>(error.code));
  context.getResults().setDetail(rpc::textOf(error.detail));
  service_.run();
  return service_.written();
}

kj::Promise<void> Service::OperatorServer::evict(EvictContext context) {
  const auto params = context.getParams();
  const std::string node = rpc::toString(params.getNode());
  const Error error =
      params.getPercent() > 100 ? Error{Code::invalidArgument, "percent"} : service_.core_.evictTo(node, params.getPercent(), bootTime());
  log::info("evict to " + std::to_string(params.getPercent()) + " %: " + (error.ok() ? "begun" : error.message()));
  context.getResults().setCode(static_cast<uint16_t>(error.code));
  context.getResults().setDetail(rpc::textOf(error.detail));
  service_.run();
  return kj::READY_NOW;
}

kj::Promise<void> Service::OperatorServer::status(StatusContext context) {
  auto out = context.getResults();
  const MasterCore& core = service_.core_;
  out.setCluster(core.identity().cluster);
  out.setClusterId(core.identity().clusterId);
  out.setTerm(core.identity().term.value);
  out.setMaster(core.identity().incarnation.value);
  out.setPid(static_cast<uint64_t>(::getpid()));
  out.setHttp(service_.http_);
  out.setListen(service_.listen_);
  out.setLeaseMs(static_cast<uint64_t>(core.settings().lease.ms()));
  out.setKeys(core.keys());
  out.setInFlightPuts(core.inFlightPuts());
  out.setRecovering(core.recovering());
  out.setUptimeMs(static_cast<uint64_t>((bootTime() - service_.started_).ms()));
  return kj::READY_NOW;
}

}  // namespace fluxon::master
