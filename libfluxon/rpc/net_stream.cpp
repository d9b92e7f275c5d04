#include "rpc/net_stream.h"

#include <kj/debug.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace fluxon::rpc {
namespace {

using Connected = Result<kj::Own<kj::AsyncIoStream>>;

constexpr kj::Duration kPatience = 5 * kj::SECONDS;

template <class Frame>
kj::Promise<Frame> readFrame(kj::AsyncInputStream& stream) {
  auto frame = kj::heap<Frame>();
  auto* to = frame.get();
  return stream.tryRead(to, sizeof(Frame), sizeof(Frame)).then([frame = kj::mv(frame)](size_t n) -> Frame {
    const auto* bytes = reinterpret_cast<const unsigned char*>(frame.get());
    if (n < sizeof(Frame) && n >= 2 && bytes[0] == 0x15 && bytes[1] == 0x03)
      kj::throwFatalException(KJ_EXCEPTION(FAILED, "alert: the peer speaks TLS only"));
    if (n < sizeof(Frame)) kj::throwFatalException(KJ_EXCEPTION(DISCONNECTED, "it ended during the opening"));
    return *frame;
  });
}
template <class Frame>
kj::Promise<void> writeFrame(kj::AsyncOutputStream& stream, const Frame& from) {
  auto frame = kj::heap<Frame>(from);
  const auto* bytes = frame.get();
  return stream.write(bytes, sizeof(Frame)).attach(kj::mv(frame));
}

// OpenSSL puts its place before its reason: "error:0A000086:SSL routines::certificate verify failed".
std::string reasonOf(const kj::Exception& error) {
  std::string text = error.getDescription().cStr();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  if (const size_t at = text.rfind("::"); at != std::string::npos && text.find("error:") != std::string::npos) {
    text = text.substr(at + 2);
    while (!text.empty() && (text.back() == ' ' || text.back() == ';')) text.pop_back();
    return "TLS: " + text;
  }
  return text;
}

// What ended an opening, as a code. A certificate that is refused shows as an alert or as a failed check.
Error judge(const std::string& peer, const kj::Exception& error) {
  const std::string reason = reasonOf(error);
  if (error.getType() == kj::Exception::Type::OVERLOADED) return {Code::timedOut, peer + " says nothing"};
  const bool refused = reason.find("certificate") != std::string::npos || reason.find("alert") != std::string::npos;
  return {refused ? Code::denied : Code::unavailable, peer + ": " + reason};
}

kj::Promise<Connected> shakeHands(kj::Own<kj::AsyncIoStream> stream, Access& access, std::string peer, net::Purpose purpose,
                                  const net::Party& self) {
  auto hand = kj::heap<net::ClientHandshake>(access.secret(), purpose, self, Incarnation());
  auto& h = *hand;
  auto& s = *stream;
  auto verdict = writeFrame(s, h.hello()).then([&s] { return readFrame<net::ServerHello>(s); });
  auto judged = verdict.then([&h, &s, peer](net::ServerHello&& hello) -> kj::Promise<Error> {
    const Result<net::ClientProof> proof = h.answer(hello);
    if (!proof) return proof.error();
    return writeFrame(s, proof.value()).then([&s] { return readFrame<net::ServerVerdict>(s); }).then([](net::ServerVerdict&& last) {
      return net::ClientHandshake::verdict(last);
    });
  });
  return judged.attach(kj::mv(hand)).then([stream = kj::mv(stream), peer](Error&& error) mutable -> Connected {
    if (!error.ok()) return Error{error.code, peer + ": " + error.detail};
    return kj::mv(stream);
  });
}

}  // namespace

kj::Promise<Connected> connectPeer(kj::UnixEventPort& port, Access& access, const Endpoint& endpoint, net::Purpose purpose,
                                   const net::Party& self, kj::Duration patience) {
  const std::string peer = toString(endpoint);
  return connectTcp(port, endpoint, patience)
      .then([&port, &access, endpoint, peer, purpose, self](Connected&& connected) -> kj::Promise<Connected> {
        if (!connected) return kj::mv(connected);
        auto opening = access.asClient(kj::mv(connected.value()), bareHost(endpoint))
                           .then([&access, peer, purpose, self](kj::Own<kj::AsyncIoStream>&& stream) {
                             return shakeHands(kj::mv(stream), access, peer, purpose, self);
                           });
        return port.getTimer().timeoutAfter(kPatience, kj::mv(opening)).catch_([peer](kj::Exception&& error) -> Connected {
          return judge(peer, error);
        });
      });
}

// One connection until it is open; lives as long as the promise of its opening.
struct NetListener::Opening {
  Opening(Access& access, net::Purpose purpose, const net::Party& self, SocketListener::Accepted accepted)
      : peer(std::move(accepted.peer)), raw(kj::mv(accepted.stream)), hand(access.secret(), purpose, self) {}
  std::string peer;
  kj::Own<kj::AsyncIoStream> raw, stream;
  net::ServerHandshake hand;
};

Result<kj::Own<NetListener>> NetListener::bind(kj::UnixEventPort& port, const Endpoint& address, Access& access, net::Purpose purpose,
                                               net::Party self, Refusals& refusals) {
  Result<kj::Own<SocketListener>> socket = SocketListener::bindTcp(port, address, refusals);
  if (!socket) return socket.error();
  return kj::heap<NetListener>(port, kj::mv(socket.value()), address, access, purpose, std::move(self), refusals);
}

NetListener::NetListener(kj::UnixEventPort& port, kj::Own<SocketListener> socket, const Endpoint& address, Access& access,
                         net::Purpose purpose, net::Party self, Refusals& refusals)
    : port_(port),
      socket_(kj::mv(socket)),
      address_(address),
      access_(access),
      purpose_(purpose),
      self_(std::move(self)),
      refusals_(refusals),
      tasks_(*this) {
  address_.port = socket_->port();
}

kj::Promise<void> NetListener::serve(std::function<void(kj::Own<kj::AsyncIoStream>, const std::string&)> opened) {
  opened_ = std::move(opened);
  return socket_->serve([this](SocketListener::Accepted accepted) { tasks_.add(open(kj::mv(accepted))); });
}

kj::Promise<void> NetListener::open(SocketListener::Accepted accepted) {
  const auto sameSource = [&](const auto& each) { return each.second.source == accepted.source; };
  if (static_cast<size_t>(std::count_if(openings_.begin(), openings_.end(), sameSource)) >= kMostOpeningOfSource) {
    giveUp(std::find_if(openings_.begin(), openings_.end(), sameSource));
  } else if (openings_.size() >= kMostOpening) {
    giveUp(openings_.begin());
  }
  const uint64_t id = ++lastOpening_;
  auto given = kj::newPromiseAndFulfiller<void>();
  openings_.emplace(id, Opened{kj::mv(given.fulfiller), accepted.source});

  auto opening = kj::heap<Opening>(access_, purpose_, self_, kj::mv(accepted));
  Opening& o = *opening;
  auto shaken = access_.asServer(kj::mv(o.raw))
                    .then([&o](kj::Own<kj::AsyncIoStream>&& stream) {
                      o.stream = kj::mv(stream);
                      return readFrame<net::ClientHello>(*o.stream);
                    })
                    .then([&o](net::ClientHello&& hello) -> kj::Promise<void> {
                      const net::ServerHello answer = o.hand.answer(hello);
                      return writeFrame(*o.stream, answer).then([code = answer.code] {
                        if (code == static_cast<uint32_t>(Code::protocol))
                          kj::throwFatalException(KJ_EXCEPTION(FAILED, "it speaks another protocol"));
                        if (code != 0) kj::throwFatalException(KJ_EXCEPTION(FAILED, "it wants another process than this"));
                      });
                    })
                    .then([&o] { return readFrame<net::ClientProof>(*o.stream); })
                    .then([&o](net::ClientProof&& proof) -> kj::Promise<void> {
                      const net::ServerVerdict verdict = o.hand.judge(proof);
                      return writeFrame(*o.stream, verdict).then([verdict] {
                        if (verdict.code != 0) kj::throwFatalException(KJ_EXCEPTION(FAILED, kj::str(kj::StringPtr(verdict.detail))));
                      });
                    });
  return port_.getTimer()
      .timeoutAfter(kPatience, kj::mv(shaken))
      .exclusiveJoin(kj::mv(given.promise))
      .then(
          [this, &o] {
            log::debug("connection of " + o.peer + " is open" + (o.hand.peer().node.empty() ? "" : ": node " + o.hand.peer().node));
            opened_(kj::mv(o.stream), o.peer);
          },
          [this, &o](kj::Exception&& error) {
            const bool late = error.getType() == kj::Exception::Type::OVERLOADED;
            refusals_.add(o.peer, late ? "it did not open within 5 s" : reasonOf(error));
          })
      .attach(kj::mv(opening), kj::defer([this, id] { openings_.erase(id); }));
}

void NetListener::giveUp(std::map<uint64_t, Opened>::iterator opening) {
  opening->second.end->reject(KJ_EXCEPTION(FAILED, "it was the oldest of too many that are opening"));
  openings_.erase(opening);
}

void NetListener::taskFailed(kj::Exception&& error) { log::error(std::string("listener: ") + error.getDescription().cStr()); }

}  // namespace fluxon::rpc
