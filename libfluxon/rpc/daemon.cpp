#include "rpc/daemon.h"

#include <kj/compat/http.h>
#include <kj/debug.h>
#include <signal.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"

namespace fluxon::rpc {

Daemon::Daemon()
    : io_([] {
        kj::UnixEventPort::captureSignal(SIGTERM);
        kj::UnixEventPort::captureSignal(SIGINT);
        ::umask(0077);
        return kj::setupAsyncIo();
      }()),
      uv_(kj::heap<UvGuest>(io_.unixEventPort, io_.provider->getTimer())) {}

kj::Promise<void> Daemon::stopped() {
  return io_.unixEventPort.onSignal(SIGTERM).exclusiveJoin(io_.unixEventPort.onSignal(SIGINT)).then([](siginfo_t signal) {
    log::info(std::string("stopping: ") + (signal.si_signo == SIGTERM ? "SIGTERM" : "SIGINT"));
  });
}

kj::Promise<void> Daemon::at(Time when) {
  const int64_t left = std::clamp<int64_t>((when - bootTime()).ns, 0, seconds(3600).ns);
  return timer().afterDelay(left * kj::NANOSECONDS);
}

void Daemon::settle() {
  while (uv_->working() > 0) timer().afterDelay(1 * kj::MILLISECONDS).wait(io_.waitScope);
}

int guarded(const char* process, const std::function<int()>& run) {
  int status = 70;
  KJ_IF_MAYBE(error, kj::runCatchingExceptions([&] { status = run(); })) {
    const Code code = error->getType() == kj::Exception::Type::DISCONNECTED ? Code::unavailable : Code::system;
    std::fprintf(stderr, "%s: %s: %s\n", process, sentence(code), error->getDescription().cStr());
    return sysexit(code);
  }
  return status;
}

void announceReady(int readyFd, const std::string& status) {
  ::sd_notify(0, ("READY=1\nSTATUS=" + status).c_str());
  if (readyFd >= 0) {
    if (::write(readyFd, "\n", 1) != 1) log::warn("could not report readiness on descriptor " + std::to_string(readyFd));
    ::close(readyFd);
  }
}
void announceStopping() { ::sd_notify(0, "STOPPING=1"); }

struct HttpEndpoint::State : kj::HttpService, kj::TaskSet::ErrorHandler {
  State(Daemon& d, Pages p) : daemon(d), pages(std::move(p)), server(d.timer(), table, *this), tasks(*this) {}

  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders&, kj::AsyncInputStream&,
                            Response& response) override {
    if (method != kj::HttpMethod::GET && method != kj::HttpMethod::HEAD) return response.sendError(405, "Method Not Allowed", table);
    std::string body;
    bool healthy = true;
    const char* type = "text/plain; version=0.0.4; charset=utf-8";
    if (url == "/metrics") {
      body = pages.metrics();
    } else if (url == "/health") {
      body = pages.health(healthy) + "\n";
      type = "application/json";
    } else {
      return response.sendError(404, "Not Found", table);
    }
    kj::HttpHeaders headers(table);
    headers.set(kj::HttpHeaderId::CONTENT_TYPE, type);
    auto stream = response.send(healthy ? 200 : 503, healthy ? "OK" : "Service Unavailable", headers, body.size());
    if (method == kj::HttpMethod::HEAD) return kj::READY_NOW;
    auto text = kj::heapString(body.data(), body.size());
    auto promise = stream->write(text.begin(), text.size());
    return promise.attach(kj::mv(stream), kj::mv(text));
  }
  // A connection that cannot be accepted, for want of descriptors, is not the last one. listenHttp() may throw at once.
  kj::Promise<void> serve() {
    return kj::evalNow([this] { return server.listenHttp(*receiver); }).catch_([this](kj::Exception&& error) {
      log::warn(std::string("http: ") + error.getDescription().cStr());
      return daemon.timer().afterDelay(100 * kj::MILLISECONDS).then([this] { return serve(); });
    });
  }
  void taskFailed(kj::Exception&& error) override { log::warn(std::string("http: ") + error.getDescription().cStr()); }

  Daemon& daemon;
  Pages pages;
  kj::HttpHeaderTable table;
  kj::HttpServer server;
  kj::Own<kj::ConnectionReceiver> receiver;
  kj::TaskSet tasks;
};

HttpEndpoint::HttpEndpoint(Daemon& daemon, Pages pages) : state_(kj::heap<State>(daemon, std::move(pages))) {}
HttpEndpoint::~HttpEndpoint() noexcept(false) {}

kj::Promise<Result<std::string>> HttpEndpoint::listen(const Endpoint& address) {
  if (!address.enabled) return Result<std::string>(std::string());
  const std::string text = toString(address);
  return state_->daemon.io()
      .provider->getNetwork()
      .parseAddress(text.c_str(), address.port)
      .then([this, address](kj::Own<kj::NetworkAddress> where) {
        state_->receiver = where->listen();
        state_->tasks.add(state_->serve());
        Endpoint bound = address;
        bound.port = static_cast<uint16_t>(state_->receiver->getPort());
        return Result<std::string>(toString(bound));
      })
      .catch_([text](kj::Exception&& error) {
        return Result<std::string>(Code::unavailable, "listen on " + text + ": " + error.getDescription().cStr());
      });
}

}  // namespace fluxon::rpc
