#include "rpc/http_endpoint.h"

#include <kj/compat/http.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "rpc/socket_stream.h"

namespace fluxon::rpc {
namespace {

// The path of "/metrics/?x=1#y" and of "http://host/metrics" is "/metrics".
std::string pathOf(kj::StringPtr url) {
  std::string path = url.cStr();
  path.resize(std::min(path.find_first_of("?#"), path.size()));
  if (const size_t scheme = path.find("://"); scheme != std::string::npos && path.front() != '/') {
    const size_t slash = path.find('/', scheme + 3);
    path = slash == std::string::npos ? "/" : path.substr(slash);
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

struct HttpEndpoint::State : private kj::TaskSet::ErrorHandler {
  State(Daemon& d, Pages p) : daemon(d), pages(std::move(p)), tasks(*this) {}

  // One connection, and who asks on it.
  struct Connection final : kj::HttpService {
    Connection(State& s, kj::Own<kj::PromiseFulfiller<void>> end)
        : state(s), server(s.daemon.timer(), s.table, *this), givesWay(kj::mv(end)), lastAsked(bootTime()) {}
    kj::Promise<void> request(kj::HttpMethod, kj::StringPtr url, const kj::HttpHeaders&, kj::AsyncInputStream&, Response&) override;

    State& state;
    kj::HttpServer server;
    kj::Own<kj::PromiseFulfiller<void>> givesWay;
    Time lastAsked;
    unsigned answering = 0;
  };

  void accepted(SocketListener::Accepted);
  void giveWay();
  void taskFailed(kj::Exception&& error) override { log::error(std::string("http: ") + error.getDescription().cStr()); }

  Daemon& daemon;
  Pages pages;
  kj::HttpHeaderTable table;
  Refusals refusals;
  std::map<uint64_t, Connection*> connections;  // by age; owned by their tasks
  uint64_t last = 0;
  kj::Own<SocketListener> listener;
  kj::TaskSet tasks;
};

kj::Promise<void> HttpEndpoint::State::Connection::request(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders&,
                                                           kj::AsyncInputStream&, Response& response) {
  lastAsked = bootTime();
  if (method != kj::HttpMethod::GET && method != kj::HttpMethod::HEAD) return response.sendError(405, "Method Not Allowed", state.table);
  std::string body;
  bool healthy = true;
  const char* type = "text/plain; version=0.0.4; charset=utf-8";
  const std::string path = pathOf(url);
  if (path == "/metrics") {
    body = state.pages.metrics();
  } else if (path == "/health") {
    body = state.pages.health(healthy) + "\n";
    type = "application/json";
  } else if (path == "/") {
    body = "/health\n/metrics\n";
    type = "text/plain; charset=utf-8";
  } else {
    return response.sendError(404, "Not Found", state.table);
  }
  kj::HttpHeaders headers(state.table);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, type);
  auto stream = response.send(healthy ? 200 : 503, healthy ? "OK" : "Service Unavailable", headers, body.size());
  if (method == kj::HttpMethod::HEAD) return kj::READY_NOW;
  auto text = kj::heapString(body.data(), body.size());
  auto promise = stream->write(text.begin(), text.size());
  ++answering;
  return promise.attach(kj::mv(stream), kj::mv(text), kj::defer([this] { --answering; }));
}

void HttpEndpoint::State::accepted(SocketListener::Accepted peer) {
  if (connections.size() >= kMostHttp) giveWay();
  auto end = kj::newPromiseAndFulfiller<void>();
  auto connection = kj::heap<Connection>(*this, kj::mv(end.fulfiller));
  const uint64_t id = ++last;
  connections.emplace(id, connection.get());
  const auto failed = [this, from = peer.peer](kj::Exception&& error) {
    if (error.getType() == kj::Exception::Type::DISCONNECTED) return;  // a peer that hangs up
    std::string why = error.getDescription().cStr();
    std::replace(why.begin(), why.end(), '\n', ' ');
    refusals.add(from, "http: " + why);
  };
  tasks.add(connection->server.listenHttp(kj::mv(peer.stream))
                .exclusiveJoin(kj::mv(end.promise))
                .catch_(failed)
                .attach(kj::mv(connection))
                .attach(kj::defer([this, id] { connections.erase(id); })));
}

// The one that answers nothing now and was asked the longest time ago; of those that answer, else.
void HttpEndpoint::State::giveWay() {
  const auto idler = [](const auto& a, const auto& b) {
    return std::pair(a.second->answering > 0, a.second->lastAsked) < std::pair(b.second->answering > 0, b.second->lastAsked);
  };
  const auto found = std::min_element(connections.begin(), connections.end(), idler);
  found->second->givesWay->fulfill();
  connections.erase(found);  // it goes with its task
}

HttpEndpoint::HttpEndpoint(Daemon& daemon, Pages pages) : state_(kj::heap<State>(daemon, std::move(pages))) {}
HttpEndpoint::~HttpEndpoint() noexcept(false) {}

Result<std::string> HttpEndpoint::listen(const Endpoint& address) {
  if (!address.enabled) return std::string();
  Result<kj::Own<SocketListener>> listener = SocketListener::bindTcp(state_->daemon.port(), address, state_->refusals);
  if (!listener) return listener.error();
  state_->listener = kj::mv(listener.value());
  State& state = *state_;
  state.tasks.add(state.listener->serve([&state](SocketListener::Accepted peer) { state.accepted(kj::mv(peer)); }));
  Endpoint bound = address;
  bound.port = state.listener->port();
  return toString(bound);
}

}  // namespace fluxon::rpc
