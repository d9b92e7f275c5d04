#include "master_client.h"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <kj/io.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "processes.h"
#include "rpc/access.h"
#include "rpc/codec.h"
#include "rpc/net_stream.h"

namespace fluxon::ctl {

struct MasterClient::State {
  State(const std::string& clusterName, uint32_t timeout, kj::AsyncIoContext loop)
      : cluster(clusterName), timeoutMs(timeout), io(kj::mv(loop)) {}

  static Result<std::unique_ptr<State>> create(const std::string& clusterName, uint32_t timeout) {
    try {
      return std::make_unique<State>(clusterName, timeout, kj::setupAsyncIo());
    } catch (const kj::Exception& exception) {
      return Error{Code::system, std::string("start the event loop: ") + exception.getDescription().cStr() + limitBehind(EMFILE)};
    }
  }

  // The answer, or what became of it: kj::Exception is turned into a code here and nowhere else.
  template <class T>
  Result<T> await(kj::Promise<T> promise, const std::string& peer) {
    try {
      return io.provider->getTimer().timeoutAfter(timeoutMs * kj::MILLISECONDS, kj::mv(promise)).wait(io.waitScope);
    } catch (const kj::Exception& exception) {
      switch (exception.getType()) {
        case kj::Exception::Type::OVERLOADED:
          // KJ says so of a timer, and of a system call of this process for which there are no descriptors or no memory.
          if (const std::string detail = exception.getDescription().cStr(); detail.ends_with(std::strerror(EMFILE)))
            return Error{Code::system, peer + ": " + detail + limitBehind(EMFILE)};
          return Error{Code::timedOut, peer + " did not answer within " + std::to_string(timeoutMs) + " ms"};
        case kj::Exception::Type::DISCONNECTED: return Error{Code::unavailable, peer + " ended: " + exception.getDescription().cStr()};
        case kj::Exception::Type::UNIMPLEMENTED: return Error{Code::notEnabled, peer + " is of a version that cannot do this"};
        case kj::Exception::Type::FAILED: break;
      }
      return Error{Code::protocol, peer + ": " + exception.getDescription().cStr()};
    }
  }
  template <class Results>
  Result<capnp::Response<Results>> answer(capnp::RemotePromise<Results> promise) {
    return await<capnp::Response<Results>>(kj::mv(promise), "the master of cluster " + cluster);
  }

  std::string cluster;
  uint32_t timeoutMs;
  kj::AsyncIoContext io;
  kj::Own<rpc::Access> access;  // to a master on another host
  kj::Own<kj::AsyncIoStream> stream;
  kj::Own<capnp::TwoPartyClient> rpc;
  kj::Maybe<schema::Operator::Client> op;

  schema::Operator::Client& operatorClient() { return KJ_ASSERT_NONNULL(op); }
};

MasterClient::MasterClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
MasterClient::~MasterClient() = default;

Error MasterClient::connectLocal(State& state, const shm::Paths& paths) {
  const std::string path = paths.masterSocket();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {Code::invalidArgument, path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  // Not through KJ: errno tells an absent master from a forbidden one.
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return systemError("socket", errno);
  state.stream = state.io.lowLevelProvider->wrapSocketFd(kj::AutoCloseFd(fd), kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EAGAIN) return {Code::timedOut, "the master of cluster " + paths.cluster + " takes no connections"};
    if (errno != ENOENT && errno != ECONNREFUSED) return systemError("connect " + path, errno);
    for (const LostDaemon& lost : lostDaemons(paths)) {
      if (lost.socket == path)
        return {Code::unavailable, "the master of cluster " + paths.cluster + " cannot be reached: " + lost.text() +
                                       " (stop it with SIGTERM, and start it anew)"};
    }
    return {Code::unavailable, "no master of cluster " + paths.cluster + " is running (start one: fluxonctl up)"};
  }
  return {};
}

Error MasterClient::connectRemote(State& state, const Config::Common& common) {
  Result<kj::Own<rpc::Access>> access = rpc::Access::load(common, rpc::Access::Side::connects);
  if (!access) return access.error();
  state.access = kj::mv(access.value());
  using Connected = Result<kj::Own<kj::AsyncIoStream>>;
  // A name that is not found, or a host that is silent, is told before the time of the whole is up.
  const kj::Duration patience = state.timeoutMs * 9 / 10 * kj::MILLISECONDS;
  Result<Connected> waited =
      state.await<Connected>(rpc::connectPeer(state.io.unixEventPort, *state.access, common.master, net::Purpose::rpc, {}, patience),
                             "the master at " + toString(common.master));
  if (!waited) return waited.error();
  if (!waited.value()) return waited.value().error();
  state.stream = kj::mv(waited.value().value());
  return {};
}

Result<std::unique_ptr<MasterClient>> MasterClient::connect(const Config::Common& common, const shm::Paths& paths, uint32_t timeoutMs) {
  Result<std::unique_ptr<State>> created = State::create(paths.cluster, timeoutMs);
  if (!created) return created.error();
  std::unique_ptr<State> state = std::move(created).value();
  const Error error = common.master.enabled ? connectRemote(*state, common) : connectLocal(*state, paths);
  if (!error.ok()) return error;
  state->rpc = kj::heap<capnp::TwoPartyClient>(*state->stream);
  schema::Master::Client master = state->rpc->bootstrap().castAs<schema::Master>();
  const auto hello = state->answer(master.helloRequest().send());
  if (!hello) return hello.error();
  if (hello.value().getProtocol() != rpc::kProtocolVersion)
    return Error{Code::protocol, rpc::otherProtocol("the master", hello.value().getProtocol())};
  // An address does not say which cluster it is of, as a socket's path does.
  const std::string cluster = rpc::toString(hello.value().getCluster());
  if (common.master.enabled && cluster != paths.cluster)
    return Error{Code::badConfig, "the master at " + toString(common.master) + " is of cluster " + cluster + ", not of " + paths.cluster};
  auto operators = master.operatorRequest();
  operators.setProtocol(rpc::kProtocolVersion);
  state->op = operators.send().getOperator();
  return std::unique_ptr<MasterClient>(new MasterClient(std::move(state)));
}

Result<MasterStatus> MasterClient::status() {
  const auto answer = state_->answer(state_->operatorClient().statusRequest().send());
  if (!answer) return answer.error();
  const auto& from = answer.value();
  MasterStatus to;
  to.cluster = rpc::toString(from.getCluster());
  to.clusterId = rpc::toString(from.getClusterId());
  to.term = Term(from.getTerm());
  to.master = Incarnation(from.getMaster());
  to.pid = from.getPid();
  to.http = rpc::toString(from.getHttp());
  to.listen = rpc::toString(from.getListen());
  to.leaseMs = from.getLeaseMs();
  to.keys = from.getKeys();
  to.inFlightPuts = from.getInFlightPuts();
  to.uptimeMs = from.getUptimeMs();
  to.recovering = from.getRecovering();
  return to;
}

Result<std::vector<MemberInfo>> MasterClient::members() {
  const auto answer = state_->answer(state_->operatorClient().membersRequest().send());
  if (!answer) return answer.error();
  std::vector<MemberInfo> members;
  for (const auto from : answer.value().getMembers()) {
    members.push_back({rpc::toString(from.getNode()),
                       rpc::toString(from.getState()),
                       Incarnation(from.getIncarnation()),
                       from.getPid(),
                       rpc::toString(from.getHttp()),
                       from.getLeaseLeftMs(),
                       from.getSegmentBytes(),
                       from.getFreeBytes(),
                       from.getLargestFree(),
                       from.getRoutedBytes(),
                       from.getLeasedBytes(),
                       from.getReservedBytes(),
                       from.getInFlightBytes(),
                       from.getRetiredBytes(),
                       from.getReplicas(),
                       from.getWaitingPuts(),
                       rpc::toString(from.getLink()),
                       rpc::toString(from.getLabel()),
                       Incarnation(from.getSsdLife()),
                       from.getSsdReplicas()});
  }
  return members;
}

Result<std::vector<RouteInfo>> MasterClient::routes(const std::string& prefix, const std::string& after, uint32_t limit) {
  auto request = state_->operatorClient().routesRequest();
  request.setPrefix(rpc::bytesOf(prefix));
  request.setAfter(rpc::bytesOf(after));
  request.setLimit(limit);
  const auto answer = state_->answer(request.send());
  if (!answer) return answer.error();
  std::vector<RouteInfo> routes;
  for (const auto from : answer.value().getRoutes()) {
    RouteInfo& to = routes.emplace_back();
    to.key = rpc::toString(from.getKey());
    to.putId = PutId(from.getPutId());
    to.bytes = from.getBytes();
    to.lease = from.getLease();
    to.inFlight = from.getInFlight();
    for (const auto node : from.getNodes()) to.nodes.push_back(rpc::toString(node));
    for (const auto node : from.getSsdNodes()) to.ssdNodes.push_back(rpc::toString(node));
  }
  return routes;
}

Result<std::vector<LeaseInfo>> MasterClient::leases(KeyLeaseId after, uint32_t limit) {
  auto request = state_->operatorClient().leasesRequest();
  request.setAfter(after.value);
  request.setLimit(limit);
  const auto answer = state_->answer(request.send());
  if (!answer) return answer.error();
  std::vector<LeaseInfo> leases;
  for (const auto from : answer.value().getLeases()) {
    leases.push_back({KeyLeaseId(from.getId()), from.getTtlMs(), from.getLeftMs(), from.getKeys()});
  }
  return leases;
}

Error MasterClient::drain(const std::string& node, Drain what) {
  auto request = state_->operatorClient().drainRequest();
  request.setNode(rpc::textOf(node));
  request.setCancel(what == Drain::cancel);
  const auto answer = state_->answer(request.send());
  return answer ? Error{codeFromWire(answer.value().getCode()), rpc::toString(answer.value().getDetail())} : answer.error();
}

Error MasterClient::evict(const std::string& node, uint32_t percent) {
  auto request = state_->operatorClient().evictRequest();
  request.setNode(rpc::textOf(node));
  request.setPercent(percent);
  const auto answer = state_->answer(request.send());
  return answer ? Error{codeFromWire(answer.value().getCode()), rpc::toString(answer.value().getDetail())} : answer.error();
}

Result<std::string> MasterClient::page(const std::string& address, const std::string& path) {
  const std::string url = "http://" + address + path;
  const kj::HttpHeaderTable table;
  auto http = kj::newHttpClient(state_->io.provider->getTimer(), table, state_->io.provider->getNetwork(), nullptr);
  unsigned status = 0;
  auto request = http->request(kj::HttpMethod::GET, url.c_str(), kj::HttpHeaders(table));
  const Result<kj::String> body = state_->await<kj::String>(request.response.then([&](kj::HttpClient::Response&& response) {
    status = response.statusCode;
    auto text = response.body->readAllText();
    return text.attach(kj::mv(response.body));
  }),
                                                            url);
  if (!body) return body.error();
  if (status != 200) return Error{Code::unavailable, url + " answers " + std::to_string(status)};
  return std::string(body.value().cStr(), body.value().size());
}

}  // namespace fluxon::ctl
