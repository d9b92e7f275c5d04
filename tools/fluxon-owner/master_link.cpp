#include "master_link.h"

#include <kj/debug.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "rpc/codec.h"
#include "rpc/net_stream.h"
#include "rpc/socket_stream.h"

namespace fluxon::owner {
namespace {

// Ends the conversation; the text is what the log shows.
[[noreturn]] void refuse(const Error& error) {
  kj::throwFatalException(kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::heapString(error.message().c_str())));
}

}  // namespace

class MasterLink::OwnerServer final : public schema::Owner::Server {
 public:
  explicit OwnerServer(MasterLink& link) : link_(link) {}
  kj::Promise<void> deliver(DeliverContext context) override {
    link_.received(context.getParams().getMessages());
    return kj::READY_NOW;
  }

 private:
  MasterLink& link_;
};

MasterLink::MasterLink(rpc::Daemon& daemon, rpc::Access& access, Place place, OwnerCore& core, shm::DirectoryHeader& header,
                       std::function<void()> changed)
    : daemon_(daemon),
      access_(access),
      place_(std::move(place)),
      core_(core),
      header_(header),
      changed_(std::move(changed)),
      first_(nullptr),
      tasks_(*this) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  firstFulfiller_ = kj::mv(paf.fulfiller);
  first_ = paf.promise.fork();
}
MasterLink::~MasterLink() = default;

kj::Promise<void> MasterLink::run() {
  return converse().catch_([this](kj::Exception&& error) {
    const std::string text = error.getDescription().cStr();
    if (text != lastError_) log::warn("master: " + text);
    lastError_ = text;
  }).then([this]() -> kj::Promise<void> {
    joined_ = false;
    connection_ = nullptr;
    queue_.clear();  // the core sends what is unanswered again
    early_.clear();  // and so does the master
    changed_();
    if (leaving_) return kj::READY_NOW;
    const int64_t pause = pauseMs_;
    pauseMs_ = std::min<int64_t>(pauseMs_ * 2, 1000);
    return daemon_.timer().afterDelay(pause * kj::MILLISECONDS).then([this] { return run(); });
  });
}

kj::Promise<kj::Own<kj::AsyncIoStream>> MasterLink::connect() {
  using Connected = Result<kj::Own<kj::AsyncIoStream>>;
  const auto stream = [](Connected&& connected) {
    if (!connected) refuse(connected.error());
    return kj::mv(connected.value());
  };
  if (!place_.master.enabled) return stream(rpc::connectUnix(daemon_.io().unixEventPort, place_.socket));
  const link::Party self{place_.registration.node, place_.registration.incarnation};
  return rpc::connectPeer(daemon_.io(), access_, place_.master, link::Purpose::rpc, self).then(stream);
}

// One connection, from its beginning to its end.
kj::Promise<void> MasterLink::converse() {
  return kj::evalNow([this] { return connect(); }).then([this](kj::Own<kj::AsyncIoStream> stream) {
    auto client = kj::heap<capnp::TwoPartyClient>(*stream);
    schema::Master::Client master = client->bootstrap().castAs<schema::Master>();
    Connection& connection =
        *connection_.emplace(kj::heap<Connection>(Connection{kj::mv(stream), kj::mv(client), kj::mv(master), nullptr}));
    return connection.master.helloRequest().send();
  }).then([this](capnp::Response<schema::Master::HelloResults> hello) {
    const uint64_t term = hello.getTerm(), master = hello.getMaster();
    KJ_REQUIRE(rpc::toString(hello.getCluster()) == place_.cluster, "the master serves another cluster", hello.getCluster());
    // Terms count within one cluster id: a cluster whose state was made anew begins again.
    const uint64_t cluster = std::strtoull(hello.getClusterId().cStr(), nullptr, 16);
    const bool sameCluster = header_.clusterId.load(std::memory_order_relaxed) == cluster;
    const uint64_t highest = sameCluster ? header_.highestTerm.load(std::memory_order_relaxed) : 0;
    KJ_REQUIRE(term > highest || (term == highest && master == header_.highestMaster.load(std::memory_order_relaxed)),
               "this master has been replaced by a later one", term, highest);
    header_.highestTerm.store(term, std::memory_order_relaxed);
    header_.highestMaster.store(master, std::memory_order_relaxed);
    const bool anew = !sameCluster || term != term_ || master != master_ || core_.fenced();
    const uint64_t before = header_.clusterId.load(std::memory_order_relaxed);
    if (anew && ((before != 0 && before != cluster) || core_.contentRefused())) {
      core_.drop(bootTime());
    } else if (anew) {
      core_.keep(bootTime());
    }
    header_.clusterId.store(cluster, std::memory_order_relaxed);
    kj::Promise<void> ready = anew ? settled() : kj::Promise<void>(kj::READY_NOW);
    return ready.then([this, term, master, anew] { return registerNow(term, master, anew); });
  }).then([this] {
    auto paf = kj::newPromiseAndFulfiller<void>();
    broken_ = kj::mv(paf.fulfiller);
    return KJ_ASSERT_NONNULL(connection_)->client->onDisconnect().exclusiveJoin(kj::mv(paf.promise));
  }).then([this] {
    if (!leaving_) log::warn("master: the connection is lost");
  });
}

// What is retired is scanned once more, so that only what is really held counts as occupied; fetches and exports have ended.
kj::Promise<void> MasterLink::settled() {
  if (core_.unsettled() == 0) return kj::READY_NOW;
  return daemon_.timer().afterDelay(1 * kj::MILLISECONDS).then([this] { return settled(); });
}

kj::Promise<void> MasterLink::registerNow(uint64_t term, uint64_t master, bool anew) {
  rpc::Registration& registration = place_.registration;
  if (anew) {
    registration.incarnation = newIncarnation();
    registration.occupied = core_.occupied();
    registration.adopts = core_.content();
  }
  auto call = KJ_ASSERT_NONNULL(connection_)->master.registerRequest();
  rpc::encode(registration, call.initRegistration());
  call.setOwner(kj::heap<OwnerServer>(*this));
  const Time sent = bootTime();
  return call.send().then([this, term, master, anew, sent](capnp::Response<schema::Master::RegisterResults> result) -> kj::Promise<void> {
    const Code code = codeFromWire(result.getCode());
    if (code == Code::fenced) term_ = master_ = 0;  // next time anew
    if (code != Code::ok) refuse({code, rpc::toString(result.getDetail())});
    if (anew && place_.registration.adopts && !result.getInventory()) {
      log::info("the master does not know the values of the last life: they go");
      core_.drop(bootTime());
      return settled().then([this, term, master] { return registerNow(term, master, true); });
    }
    KJ_ASSERT_NONNULL(connection_)->session = result.getSession();
    term_ = term;
    master_ = master;
    joined_ = true;
    pauseMs_ = 50;
    lastError_.clear();
    const Duration lease = milliseconds(static_cast<int64_t>(result.getLeaseMs()));
    log::info("joined term " + std::to_string(term) + " as " + toString(place_.registration.incarnation) + (anew ? "" : " again"));
    if (anew) {
      const auto inventory = result.getInventory() ? OwnerCore::Inventory::wanted : OwnerCore::Inventory::none;
      core_.registered(place_.registration.incarnation, lease, sent, inventory, bootTime());
    } else {
      core_.reconnected(lease, sent);
    }
    for (const rpc::MasterMessage& message : std::exchange(early_, {})) core_.message(message, bootTime());
    changed_();
    return kj::READY_NOW;
  });
}

void MasterLink::send(const rpc::Request& request) {
  if (!joined_) return;  // kept by the core, sent again when joined
  queue_.push_back(request);
  if (std::exchange(flushing_, true)) return;
  tasks_.add(kj::evalLater([this] {
    flushing_ = false;
    flush();
  }));
}

void MasterLink::flush() {
  if (queue_.empty() || !joined_) return;
  KJ_IF_MAYBE(connection, connection_) {
    KJ_IF_MAYBE(session, (*connection)->session) {
      auto call = session->submitRequest();
      rpc::encode(queue_, call.initRequests(static_cast<unsigned>(queue_.size())));
      call.setLowestUnanswered(core_.lowestUnanswered().value);
      queue_.clear();
      answered_ = nullptr;
      tasks_.add(call.send().then([this](capnp::Response<schema::Session::SubmitResults> result) {
        received(result.getMessages());
        // Dropping a response tells the master that it is finished with: kept, that travels with the next call.
        answered_ = kj::heap(kj::mv(result));
      },
                                  [this](kj::Exception&& error) {
        if (error.getType() == kj::Exception::Type::DISCONNECTED) return;
        log::error(std::string("master refused a request: ") + error.getDescription().cStr());
        if (broken_.get() != nullptr) broken_->fulfill();
      }));
    }
  }
}

void MasterLink::received(capnp::List<schema::MasterMessage>::Reader messages) {
  // Orders may come before the answer to the registration that they belong to.
  if (!joined_) {
    for (rpc::MasterMessage& message : rpc::decode(messages)) early_.push_back(std::move(message));
    return;
  }
  for (const rpc::MasterMessage& message : rpc::decode(messages)) core_.message(message, bootTime());
  changed_();
}

void MasterLink::check() {
  if (joined_ && core_.listening() && !core_.reporting()) firstFulfiller_->fulfill();
  if (!joined_ || !core_.fenced()) return;
  log::warn("this incarnation is fenced: joining again");
  joined_ = false;
  term_ = master_ = 0;
  if (broken_.get() != nullptr) broken_->fulfill();
}

kj::Promise<void> MasterLink::leave(Values values) {
  leaving_ = true;
  kj::Promise<void> told = kj::READY_NOW;
  KJ_IF_MAYBE(connection, connection_) {
    KJ_IF_MAYBE(session, (*connection)->session) {
      auto call = session->leaveRequest();
      call.setKeeps(values == Values::kept);
      told = call.send().ignoreResult();
    }
  }
  return daemon_.timer().timeoutAfter(1 * kj::SECONDS, kj::mv(told)).catch_([](kj::Exception&&) {
    log::warn("the master did not hear the farewell; it waits for the lease to run out");
  });
}

void MasterLink::taskFailed(kj::Exception&& error) { log::error(std::string("master link: ") + error.getDescription().cStr()); }

}  // namespace fluxon::owner
