#include "service.h"

#include <capnp/rpc-twoparty.h>
#include <kj/debug.h>
#include <unistd.h>

#include <ctime>

#include "base/json.h"
#include "base/log.h"
#include "rpc/codec.h"
#include "rpc/metrics.h"

namespace fluxon::master {

namespace {

// "2026-12-01T23:45:01Z"
std::string wallTime() {
  const time_t now = ::time(nullptr);
  tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

}  // namespace

class Service::SessionServer final : public schema::Session::Server {
 public:
  SessionServer(Service& service, std::shared_ptr<Member> member, uint64_t connection)
      : service_(service), member_(std::move(member)), connection_(connection) {}
  ~SessionServer() noexcept(false) { service_.lost(*member_, connection_); }

  kj::Promise<void> submit(SubmitContext context) override {
    const auto params = context.getParams();
    std::vector<OperationId> stragglers;
    for (const uint64_t id : params.getStragglers()) stragglers.emplace_back(id);
    service_.core_.handle(*member_, rpc::decode(params.getRequests()), OperationId(params.getLowestUnanswered()), bootTime(), stragglers);
    const std::vector<rpc::MasterMessage> ready = service_.channels_.take(*member_, connection_);
    rpc::encode(ready, context.getResults().initMessages(static_cast<unsigned>(ready.size())));
    service_.run();
    return kj::READY_NOW;
  }

  kj::Promise<void> leave(LeaveContext context) override {
    const bool keeps = context.getParams().getKeeps();
    log::info("node " + member_->node() + (keeps ? " stops" : " leaves"));
    service_.core_.leave(*member_, keeps ? MasterCore::Content::kept : MasterCore::Content::gone, bootTime());
    service_.run();
    return service_.written();
  }

 private:
  Service& service_;
  std::shared_ptr<Member> member_;
  uint64_t connection_;
};

class Service::OperatorServer final : public schema::Operator::Server {
 public:
  explicit OperatorServer(Service& service) : service_(service) {}

  kj::Promise<void> members(MembersContext context) override {
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

  kj::Promise<void> routes(RoutesContext context) override {
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

  kj::Promise<void> leases(LeasesContext context) override {
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

  kj::Promise<void> drain(DrainContext context) override {
    const std::string node = rpc::toString(context.getParams().getNode());
    const bool cancel = context.getParams().getCancel();
    const Error error = cancel ? service_.core_.undrain(node) : service_.core_.drain(node, bootTime());
    log::info("drain of node " + node + ": " + (!error.ok() ? error.message() : cancel ? "taken back" : "begun"));
    context.getResults().setCode(static_cast<uint16_t>(error.code));
    context.getResults().setDetail(rpc::textOf(error.detail));
    service_.run();
    return service_.written();
  }

  kj::Promise<void> evict(EvictContext context) override {
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

  kj::Promise<void> status(StatusContext context) override {
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

 private:
  static uint32_t pageOf(uint32_t limit) {
    constexpr uint32_t kLargestPage = 1000;
    return limit == 0 ? kLargestPage : std::min(limit, kLargestPage);
  }

  Service& service_;
};

class Service::MasterServer final : public schema::Master::Server {
 public:
  MasterServer(Service& service, std::string from) : service_(service), from_(std::move(from)) {}

  kj::Promise<void> hello(HelloContext context) override {
    const MasterCore::Identity& identity = service_.core_.identity();
    auto out = context.getResults();
    out.setClusterId(identity.clusterId);
    out.setCluster(identity.cluster);
    out.setTerm(identity.term.value);
    out.setMaster(identity.incarnation.value);
    out.setProtocol(rpc::kProtocolVersion);
    return kj::READY_NOW;
  }

  kj::Promise<void> register_(RegisterContext context) override {
    rpc::Registration registration = rpc::decode(context.getParams().getRegistration());
    const std::string who = from_ + " (pid " + std::to_string(registration.pid);
    registration.from = who + ", since " + wallTime() + ")";
    std::shared_ptr<Member> member;
    const rpc::Registered result = service_.core_.registerOwner(registration, bootTime(), member);
    context.getResults().setCode(static_cast<uint16_t>(result.code));
    context.getResults().setDetail(rpc::textOf(result.detail));
    context.getResults().setLeaseMs(result.leaseMs);
    if (!member) {
      const std::string why = Error{result.code, result.detail}.message();
      const std::string line = service_.refusedJoins_.refused(registration.node, registration.hostId, who + ")", why, bootTime());
      if (!line.empty()) log::warn(line);
      return kj::READY_NOW;
    }
    log::info("node " + registration.node + " joins, incarnation " + toString(registration.incarnation) + ", pid " +
              std::to_string(registration.pid));
    const uint64_t connection = service_.channels_.connected(*member);
    service_.owners_.emplace(connection, context.getParams().getOwner());
    context.getResults().setSession(kj::heap<SessionServer>(service_, member, connection));
    service_.run();
    context.getResults().setInventory(result.inventory);
    // The member is durable before it hears that it may serve.
    return service_.written();
  }

  kj::Promise<void> operator_(OperatorContext context) override {
    const uint32_t protocol = context.getParams().getProtocol();
    KJ_REQUIRE(protocol == rpc::kProtocolVersion, rpc::otherProtocol("fluxonctl", protocol));
    context.getResults().setOperator(kj::heap<OperatorServer>(service_));
    return kj::READY_NOW;
  }

 private:
  Service& service_;
  const std::string from_;
};

Service::Service(rpc::Daemon& daemon, MasterCore::Identity identity, Settings settings, DurableState durable, std::string statePath,
                 const rpc::Refusals& refusals)
    : daemon_(daemon),
      writer_(std::move(durable)),
      disk_(kernelDisk()),
      statePath_(std::move(statePath)),
      refusals_(refusals),
      started_(bootTime()),
      core_(std::move(identity), settings, writer_.state().members,
            leaseEnd(milliseconds(static_cast<int64_t>(writer_.state().leaseMs)), bootTime()), *this),
      tasks_(*this) {
  run();
  tasks_.add(watchRefused());
}
Service::~Service() noexcept = default;

void Service::accept(kj::Own<kj::AsyncIoStream> stream, const std::string& from) {
  auto server = kj::heap<capnp::TwoPartyServer>(kj::heap<MasterServer>(*this, from));
  kj::Promise<void> served = server->accept(*stream);
  tasks_.add(served.attach(kj::mv(server)).attach(kj::mv(stream)).catch_([from](kj::Exception&& error) {
    log::debug("connection of " + from + ": " + error.getDescription().cStr());
  }));
}

kj::Promise<void> Service::watchRefused() {
  for (const std::string& line : refusedJoins_.ended(bootTime())) log::info(line);
  return daemon_.timer().afterDelay(10 * kj::SECONDS).then([this] { return watchRefused(); });
}

void Service::lost(Member& member, uint64_t connection) {
  owners_.erase(connection);
  if (!channels_.lost(member, connection)) return;
  log::info("connection of node " + member.node() + " is lost");
  core_.disconnected(member);
}

void Service::flush() {
  channels_.takeAll([&](Member&, uint64_t connection, const std::vector<rpc::MasterMessage>& messages) {
    auto call = owners_.at(connection).deliverRequest();
    rpc::encode(messages, call.initMessages(static_cast<unsigned>(messages.size())));
    tasks_.add(call.send().ignoreResult().catch_([](kj::Exception&& error) {
      if (error.getType() != kj::Exception::Type::DISCONNECTED) log::warn(std::string("deliver: ") + error.getDescription().cStr());
    }));
  });
}

// After anything that may have changed the core: sends what it said, does a slice of long work, and arms the next wake-up.
void Service::run() {
  write();
  flush();
  const Time next = std::min(core_.nextWake(), writer_.nextWake());
  kj::Promise<void> wake = core_.hasWork() ? daemon_.afterLook() : daemon_.at(next);
  auto paf = kj::newPromiseAndFulfiller<void>();
  if (rescheduled_.get() != nullptr) rescheduled_->fulfill();
  rescheduled_ = kj::mv(paf.fulfiller);
  // true: the wake-up is due; false: a later run() has armed another one.
  tasks_.add(wake.then([] { return true; }).exclusiveJoin(paf.promise.then([] { return false; })).then([this](bool due) {
    if (due) woken();
  }));
}

void Service::woken() {
  core_.tick(bootTime(), daemon_.port().heard());
  core_.work();
  run();
}

// Hands the durable state to the disk if it has changed; what waits for it goes on when it is there.
void Service::write() {
  std::optional<DurableState> state = writer_.begin(core_, bootTime());
  if (!state) return;
  auto result = std::make_shared<Error>();
  auto stored = daemon_.workers().run([this, result, state = std::move(*state)] { *result = storeState(*disk_, statePath_, state); });
  tasks_.add(stored.then([this, result] {
    const uint64_t version = writer_.ended(*result, bootTime());
    if (result->ok()) {
      core_.persisted(version, bootTime());
    } else {
      log::error(result->message());
    }
    for (; !written_.empty() && written_.begin()->first <= version; written_.erase(written_.begin())) {
      if (result->ok()) {
        written_.begin()->second->fulfill();
      } else {
        written_.begin()->second->reject(KJ_EXCEPTION(FAILED, "the member could not be made durable"));
      }
    }
    run();
  }));
}

// Resolves when what is durable() now is on disk.
kj::Promise<void> Service::written() {
  write();
  const uint64_t version = core_.durable().version;
  if (version <= core_.persistedVersion()) return kj::READY_NOW;
  auto paf = kj::newPromiseAndFulfiller<void>();
  written_.emplace(version, kj::mv(paf.fulfiller));
  return kj::mv(paf.promise);
}

void Service::taskFailed(kj::Exception&& error) { log::error(std::string("task: ") + error.getDescription().cStr()); }

std::string Service::health(bool& healthy) const {
  uint64_t joined = 0, silent = 0;
  for (const auto& [node, member] : core_.members()) {
    if (member->lives()) ++(member->connected() ? joined : silent);
  }
  healthy = writer_.error().ok();
  return "{\"process\":\"fluxon-master\",\"healthy\":" + std::string(healthy ? "true" : "false") +
         ",\"cluster\":" + jsonString(core_.identity().cluster) + ",\"term\":" + std::to_string(core_.identity().term.value) +
         ",\"recovering\":" + (core_.recovering() ? "true" : "false") + ",\"owners\":" + std::to_string(joined) +
         ",\"silent\":" + std::to_string(silent) + ",\"listen\":" + jsonString(listen_) +
         ",\"error\":" + jsonString(writer_.error().ok() ? "" : writer_.error().message()) + "}";
}

std::string Service::metrics() const {
  rpc::MetricsPage page;
  const MasterCounters& c = core_.counters();
  const auto loop = [&](const char* name, const char* help, Duration value) {
    page.gauge(name, help, static_cast<double>(value.ns) * 1e-9);
  };
  loop("fluxon_master_loop_longest_seconds", "Longest time between two looks at sockets and timers, since this page was asked for last.",
       daemon_.port().takeLongest());
  loop("fluxon_master_loop_longest_ever_seconds", "The same since the start.", daemon_.port().longestEver());
  loop("fluxon_master_loop_longest_busy_seconds", "The most that was computed between two looks since the start.",
       daemon_.port().longestBusy());
  page.gauge("fluxon_master_term", "Term of this master.", static_cast<double>(core_.identity().term.value));
  page.gauge("fluxon_master_recovering", "1 while the recovery window of the term is open.", core_.recovering());
  page.gauge("fluxon_master_keys", "Keys with a route.", static_cast<double>(core_.keys()));
  page.gauge("fluxon_master_transfers_inflight", "Copies of values on their way from owner to owner.",
             static_cast<double>(core_.transfers()));
  page.gauge("fluxon_master_puts_inflight", "Puts that have begun and not ended.", static_cast<double>(core_.inFlightPuts()));
  page.gauge("fluxon_master_oldest_put_seconds", "Age of the oldest put that has begun and not ended, 0 without one.",
             static_cast<double>(core_.oldestPut(bootTime()).ns) * 1e-9);
  page.gauge("fluxon_master_oldest_transfer_seconds", "Age of the oldest copy on its way from owner to owner, 0 without one.",
             static_cast<double>(core_.oldestTransfer(bootTime()).ns) * 1e-9);
  const auto counter = [&](const char* name, const char* help, uint64_t value) { page.counter(name, help, static_cast<double>(value)); };
  counter("fluxon_master_puts_started_total", "Puts begun.", c.putsStarted);
  counter("fluxon_master_puts_published_total", "Puts that became the route of their key.", c.putsPublished);
  counter("fluxon_master_puts_overwritten_total", "Puts that were overwritten or deleted before they were done.", c.putsOverwritten);
  counter("fluxon_master_puts_refused_total", "Puts refused: key exists, in flight, no lease, bad size or key.", c.putsRefused);
  counter("fluxon_master_puts_aborted_total", "Puts given up by their writer.", c.putsAborted);
  counter("fluxon_master_puts_nospace_total", "Puts that found no space by their deadline.", c.noSpace);
  counter("fluxon_master_gets_total", "Gets that reached the master.", c.gets);
  counter("fluxon_master_get_misses_total", "Gets that reached the master and found no route.", c.getMisses);
  counter("fluxon_master_removes_total", "Deletes.", c.removes);
  counter("fluxon_master_evictions_total", "Replicas evicted.", c.evictions);
  counter("fluxon_master_evictions_busy_total", "Victims that were being read and stayed.", c.evictionsBusy);
  counter("fluxon_master_invalidations_total", "Replicas of other owners invalidated by an overwrite or delete.", c.invalidations);
  counter("fluxon_master_fetches_total", "Gets whose value was on another host.", c.fetches);
  counter("fluxon_master_replicas_made_total", "Copies that became replicas.", c.replicasMade);
  counter("fluxon_master_transfers_failed_total", "Copies that failed.", c.transfersFailed);
  counter("fluxon_master_ssd_commits_total", "Values that came to an SSD.", c.ssdCommits);
  counter("fluxon_master_ssd_commits_ignored_total", "Values that came to an SSD too late: they were overwritten, deleted or evicted.",
          c.ssdCommitsIgnored);
  counter("fluxon_master_ssd_evicted_total", "Values that an SSD gave up by itself.", c.ssdEvictions);
  counter("fluxon_master_ssd_loads_total", "Gets whose value was to be brought from an SSD.", c.ssdLoads);
  counter("fluxon_master_ssd_loads_failed_total", "Values that were not on the SSD any more when a get asked for them.", c.ssdLoadsFailed);
  counter("fluxon_master_puts_elsewhere_total", "Puts whose value went to another owner than the one that was asked.", c.placedElsewhere);
  counter("fluxon_master_inventory_taken_total", "Values of an owner's last life that are served again.", c.revived);
  counter("fluxon_master_inventory_refused_total", "Values of an owner's last life that had to go.", c.inventoryRefused);
  counter("fluxon_master_owners_fenced_total", "Incarnations of owners fenced.", c.fenced);
  counter("fluxon_master_key_leases_expired_total", "Key leases whose time ran out.", c.leasesExpired);
  counter("fluxon_master_joins_refused_total", "Registrations of owners that were refused.", refusedJoins_.total());
  counter("fluxon_master_log_lines_dropped_total", "Lines of the log that standard error did not take.", log::dropped());
  counter("fluxon_master_connections_refused_total", "Connections refused before they could ask anything.", refusals_.count());
  for (const auto& [node, member] : core_.members()) {
    if (!member->lives()) continue;
    const rpc::MetricsPage::Labels label{{"node", node}};
    const MemberSpace& space = member->space;
    const auto bytes = [&](const char* name, const char* help, uint64_t value) {
      page.gauge(name, help, static_cast<double>(value), label);
    };
    bytes("fluxon_master_segment_capacity_bytes", "Capacity of the owner's segment.", space.capacity());
    bytes("fluxon_master_segment_free_bytes", "Bytes of the segment that are free.", space.freeBytes());
    bytes("fluxon_master_segment_largest_free_bytes", "Largest value that would fit now.", space.largestFree());
    bytes("fluxon_master_segment_routed_bytes", "Bytes of readable replicas.", space.bytes(Use::routed) + space.bytes(Use::reclaiming));
    bytes("fluxon_master_segment_leased_bytes", "Bytes of readable replicas under a key lease.", space.leasedBytes());
    bytes("fluxon_master_segment_reserved_bytes", "Bytes handed to the owner ahead of puts.", space.bytes(Use::reserved));
    bytes("fluxon_master_segment_inflight_bytes", "Bytes being put.", space.bytes(Use::inFlight));
    bytes("fluxon_master_segment_retired_bytes", "Bytes without a route that are still read or not yet released.",
          space.bytes(Use::unrouted));
    bytes("fluxon_master_segment_busy_bytes", "Bytes of replicas that were being read when they were asked to go last.", space.busyBytes());
    bytes("fluxon_master_ssd_replicas", "Values on the owner's SSD.", member->ssdReplicas());
    bytes("fluxon_master_puts_waiting", "Puts that wait for space.", member->shortage.waiting().size());
  }
  return page.text();
}

}  // namespace fluxon::master
