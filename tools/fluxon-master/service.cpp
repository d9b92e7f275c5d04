#include "service.h"

#include <capnp/rpc-twoparty.h>
#include <kj/debug.h>

#include <ctime>

#include "base/json.h"
#include "base/log.h"
#include "operator_server.h"
#include "rpc/codec.h"

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
    // The record of the member is on disk before the owner learns that it may serve.
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

// Runs after anything that may have changed the core: sends its messages, does a slice of long work, and arms the next wake-up.
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

// Writes the durable state to disk if it has changed, then resumes what waits for it.
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

// Resolves when durable() as it is now is on disk.
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
  return JsonObject()
      .text("process", "fluxon-master")
      .flag("healthy", healthy)
      .text("cluster", core_.identity().cluster)
      .number("term", core_.identity().term.value)
      .flag("recovering", core_.recovering())
      .number("owners", joined)
      .number("silent", silent)
      .text("listen", listen_)
      .text("error", writer_.error().ok() ? "" : writer_.error().message())
      .str();
}

}  // namespace fluxon::master
