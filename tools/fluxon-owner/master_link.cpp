#include "master_link.h"

#include <kj/debug.h>

#include <algorithm>

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
  OwnerServer(MasterLink& link, Incarnation life) : link_(link), life_(life) {}
  kj::Promise<void> deliver(DeliverContext context) override {
    link_.received(life_, context.getParams().getMessages());
    return kj::READY_NOW;
  }

 private:
  MasterLink& link_;
  Incarnation life_;
};

MasterLink::MasterLink(rpc::Daemon& daemon, rpc::Access& access, Place place, Joining joining, OwnerCore& core,
                       std::function<void()> changed)
    : daemon_(daemon),
      access_(access),
      place_(std::move(place)),
      core_(core),
      joining_(std::move(joining)),
      changed_(std::move(changed)),
      first_(nullptr),
      tasks_(*this) {
  auto paf = kj::newPromiseAndFulfiller<void>();
  firstFulfiller_ = kj::mv(paf.fulfiller);
  first_ = paf.promise.fork();
}
MasterLink::~MasterLink() = default;

kj::Promise<void> MasterLink::run() {
  return converse()
      .catch_([this](kj::Exception&& error) {
        const std::string text = error.getDescription().cStr();
        if (text != lastError_) log::warn("master: " + text);
        lastError_ = text;
        core_.apart(text);
      })
      .then([this]() -> kj::Promise<void> {
        connection_ = nullptr;
        queue_.clear();
        joining_.lost();
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
  if (!place_.master.enabled) return stream(rpc::connectUnix(daemon_.port(), place_.socket));
  const net::Party self{registration().node, registration().incarnation};
  return rpc::connectPeer(daemon_.port(), access_, place_.master, net::Purpose::rpc, self).then(stream);
}

// One connection, from its beginning to its end.
kj::Promise<void> MasterLink::converse() {
  return kj::evalNow([this] { return connect(); })
      .then([this](kj::Own<kj::AsyncIoStream> stream) {
        ++connections_;
        auto client = kj::heap<capnp::TwoPartyClient>(*stream);
        schema::Master::Client master = client->bootstrap().castAs<schema::Master>();
        Connection& connection =
            *connection_.emplace(kj::heap<Connection>(Connection{kj::mv(stream), kj::mv(client), kj::mv(master), nullptr}));
        return connection.master.helloRequest().send();
      })
      .then([this](capnp::Response<schema::Master::HelloResults> hello) {
        const rpc::Hello said{rpc::toString(hello.getClusterId()), rpc::toString(hello.getCluster()), Term(hello.getTerm()),
                              Incarnation(hello.getMaster()), hello.getProtocol()};
        if (Error error = joining_.met(said, bootTime()); !error.ok()) refuse(error);
        return join();
      })
      .then([this] {
        auto paf = kj::newPromiseAndFulfiller<void>();
        broken_ = kj::mv(paf.fulfiller);
        return KJ_ASSERT_NONNULL(connection_)->client->onDisconnect().exclusiveJoin(kj::mv(paf.promise));
      })
      .then([this] {
        if (!leaving_) log::warn("master: the connection is lost");
      });
}

kj::Promise<void> MasterLink::join() {
  if (!joining_.ready()) return daemon_.timer().afterDelay(1 * kj::MILLISECONDS).then([this] { return join(); });
  auto call = KJ_ASSERT_NONNULL(connection_)->master.registerRequest();
  rpc::encode(joining_.begin(newIncarnation(), bootTime()), call.initRegistration());
  call.setOwner(kj::heap<OwnerServer>(*this, registration().incarnation));
  return call.send().then([this](capnp::Response<schema::Master::RegisterResults> result) -> kj::Promise<void> {
    rpc::Registered answer;
    answer.code = codeFromWire(result.getCode());
    answer.detail = rpc::toString(result.getDetail());
    answer.leaseMs = result.getLeaseMs();
    answer.inventory = result.getInventory();
    if (answer.code == Code::ok) KJ_ASSERT_NONNULL(connection_)->session = result.getSession();
    Result<Joining::Answered> joined = joining_.answered(answer, bootTime());
    if (!joined) refuse(joined.error());
    if (*joined == Joining::Answered::again) {
      log::info("the master does not know the values of the last life: they go");
      return join();
    }
    pauseMs_ = 50;
    lastError_.clear();
    core_.apart("");
    log::info("joined term " + std::to_string(term()) + " as " + toString(registration().incarnation));
    changed_();
    return kj::READY_NOW;
  });
}

void MasterLink::send(const rpc::Request& request) {
  if (!joined()) return;  // kept by the core, sent again when joined
  queue_.push_back(request);
  if (std::exchange(flushing_, true)) return;
  tasks_.add(kj::evalLater([this] {
    flushing_ = false;
    flush();
  }));
}

void MasterLink::flush() {
  if (queue_.empty() || !joined()) return;
  KJ_IF_MAYBE (connection, connection_) {
    KJ_IF_MAYBE (session, (*connection)->session) {
      auto call = session->submitRequest();
      rpc::encode(queue_, call.initRequests(static_cast<unsigned>(queue_.size())));
      const OwnerCore::Unanswered unanswered = core_.unanswered();
      call.setLowestUnanswered(unanswered.lowest.value);
      auto stragglers = call.initStragglers(static_cast<unsigned>(unanswered.stragglers.size()));
      for (unsigned i = 0; i < stragglers.size(); ++i) stragglers.set(i, unanswered.stragglers[i].value);
      queue_.clear();
      answered_ = nullptr;
      tasks_.add(call.send().then(
          [this, life = registration().incarnation](capnp::Response<schema::Session::SubmitResults> result) {
            received(life, result.getMessages());
            // To drop a response sends the master a message (finish). Kept until the next call, that travels with the call.
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

void MasterLink::received(Incarnation life, capnp::List<schema::MasterMessage>::Reader messages) {
  for (rpc::MasterMessage& message : rpc::decode(messages)) joining_.heard(life, std::move(message), bootTime());
  changed_();
}

void MasterLink::check() {
  if (joined() && core_.listening() && !core_.reporting()) firstFulfiller_->fulfill();
  if (!joining_.fenced()) return;
  log::warn("this incarnation is fenced: joining again");
  if (broken_.get() != nullptr) broken_->fulfill();
}

kj::Promise<void> MasterLink::leave(Values values) {
  leaving_ = true;
  kj::Promise<void> told = kj::READY_NOW;
  KJ_IF_MAYBE (connection, connection_) {
    KJ_IF_MAYBE (session, (*connection)->session) {
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
