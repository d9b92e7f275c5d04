#include "link/tcp/link_thread.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "base/bell.h"
#include "base/descriptors.h"
#include "base/thread.h"
#include "net/socket_address.h"

namespace fluxon::link::tcp {
namespace {

constexpr Duration kAcceptPause = milliseconds(100);

}  // namespace

// --- mailbox

Result<std::shared_ptr<Mailbox>> Mailbox::create() {
  auto box = std::make_shared<Mailbox>();
  box->wake_ = shm::Descriptor(bell::makeBlocking());
  box->events_ = shm::Descriptor(bell::make());
  if (!box->wake_ || !box->events_) return systemError("eventfd", errno);
  return box;
}

void Mailbox::post(Message message) {
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = messages_.empty();
    messages_.push_back(std::move(message));
  }
  if (first) bell::ring(wake_.get());
}

std::vector<Mailbox::Message> Mailbox::takeMessages() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

void Mailbox::tell(LinkEvents& events) {
  if (events.fetched.empty() && events.unpublished.empty()) return;
  const std::lock_guard lock(mutex_);
  for (Fetched& each : events.fetched) told_.fetched.push_back(std::move(each));
  told_.unpublished.insert(told_.unpublished.end(), events.unpublished.begin(), events.unpublished.end());
  events.fetched.clear();
  events.unpublished.clear();
  bell::ring(events_.get());
}

LinkEvents Mailbox::takeEvents() {
  const std::lock_guard lock(mutex_);
  bell::clear(events_.get());
  return std::exchange(told_, {});
}

// --- thread

LinkThread::LinkThread(const Settings& settings, const net::Secret& secret, const std::string& node, const shm::DirectoryView& own,
                       shm::ClientFile& hazards, std::shared_ptr<Mailbox> mailbox, shm::Descriptor listener)
    : settings_(settings),
      secret_(secret),
      node_(node),
      mailbox_(std::move(mailbox)),
      listener_(std::move(listener)),
      source_(own, hazards,
              {[this](uint64_t exportId) { events_.unpublished.push_back(exportId); }, [this](uint64_t id) { exportChanged(id); }}) {}

LinkThread::~LinkThread() {
  if (!thread_.joinable()) return;
  mailbox_->post([](LinkThread& self) { self.stop(); });
  thread_.join();
}

Error LinkThread::run() {
  std::promise<void> ready;
  Result<std::thread> thread = startThread([this, &ready] { loop(ready); });
  if (!thread) return thread.error();
  thread_ = std::move(thread).value();
  ready.get_future().wait();
  return {};
}

void LinkThread::loop(std::promise<void>& ready) {
  ::pthread_setname_np(::pthread_self(), "tcp-link");
  std::string why = "refused by settings";
  const auto log = settings_.log ? settings_.log : [](const std::string&) {};
  if (!settings_.refuseUring) engine_ = makeUringEngine(why);
  uring_ = engine_ != nullptr;
  if (!engine_) {
    log("io_uring is refused (" + why + "): poll() serves, which is slower");
    engine_ = makePollEngine();
  }
  context_.reset(new LinkContext{
      *engine_, secret_, {node_, {}}, settings_.pieceBytes, settings_.congestionControl, settings_.idle, settings_.stall, counters_, log});
  puller_ =
      std::make_unique<Puller>(*context_, settings_.connectionsPerPeer,
                               Puller::Outside{[this](Fetched event) { events_.fetched.push_back(std::move(event)); },
                                               [this](const std::string& key, const std::string& address) { resolve(key, address); }});
  accept_.sink = wake_.sink = this;
  accept_.kind = Operation::Kind::accept;
  accept_.fd = listener_.get();
  wake_.fd = mailbox_->wakeFd();
  context_->now = bootTime();
  listen();
  engine_->start(wake_);
  ready.set_value();  // the promise is not touched from here on

  std::vector<Completion> completions;
  while (!stopping_ || accept_.inFlight || wake_.inFlight || !serving_.empty() || !puller_->idle()) {
    completions.clear();
    engine_->wait(std::min({puller_->nextDeadline(), context_->nextDue, acceptAgain_}), completions);
    context_->now = bootTime();
    for (const Completion& each : completions) {
      each.operation->inFlight = false;
      each.operation->sink->completed(*each.operation, each.result);
    }
    onDue();
    puller_->afterTurn();
    makeRoom();
    sweep();
    tellEvents();
  }
  puller_.reset();
  context_.reset();
  engine_.reset();
}

void LinkThread::completed(Operation& op, int result) {
  if (&op == &accept_) return onAccepted(result);
  if (!stopping_) engine_->start(wake_);
  for (const Mailbox::Message& message : mailbox_->takeMessages()) message(*this);
}

void LinkThread::stop() {
  stopping_ = true;
  if (accept_.inFlight) engine_->cancel(accept_);
  if (wake_.inFlight) engine_->cancel(wake_);
  puller_->closeAll();
  for (const auto& connection : serving_) connection->close({Code::unavailable, "the link ends"});
}

void LinkThread::setIncarnation(Incarnation incarnation) {
  context_->self.incarnation = incarnation;
  for (const auto& connection : serving_) connection->close({Code::unavailable, "another incarnation"});
}

void LinkThread::listen() {
  acceptAgain_ = Time::never();
  if (listener_ && !stopping_ && !accept_.inFlight) engine_->start(accept_);
}

void LinkThread::onAccepted(int result) {
  shm::Descriptor fd(result);
  if (stopping_) return;
  if (result == -EMFILE || result == -ENFILE || result == -ENOMEM || result == -ENOBUFS) {
    acceptAgain_ = context_->now + kAcceptPause;
    return;
  }
  if (fd && isReserved(fd.get())) {
    context_->count(counters_.refusedHellos);
    context_->log("refused a data connection: no descriptor is left for it");
  } else if (fd) {
    const auto unproved = [](const auto& each) { return !each->closing() && !each->proved(); };
    if (static_cast<size_t>(std::count_if(serving_.begin(), serving_.end(), unproved)) >= kMostUnproved)
      (*std::find_if(serving_.begin(), serving_.end(), unproved))->giveWay();
    serving_.push_back(std::make_unique<ServingConnection>(*context_, source_, std::move(fd)));
  }
  listen();
}

// After each turn: closes what has proved itself beyond kMostProved.
void LinkThread::makeRoom() {
  const auto proved = [](const auto& each) { return !each->closing() && each->proved(); };
  if (serving_.size() <= kMostProved) return;
  for (auto count = static_cast<size_t>(std::count_if(serving_.begin(), serving_.end(), proved)); count > kMostProved; --count) {
    ServingConnection* goes = nullptr;
    for (const auto& each : serving_) {
      if (!proved(each)) continue;
      const bool better = !goes || !goes->idle() || (each->idle() && each->lastUsed() < goes->lastUsed());
      if (better) goes = each.get();
    }
    goes->giveWay();
  }
}

void LinkThread::onDue() {
  if (acceptAgain_ <= context_->now) listen();
  puller_->onDeadlines();
  if (context_->nextDue > context_->now) return;
  context_->nextDue = Time::never();
  puller_->onDue();
  for (const auto& connection : serving_) {
    if (!connection->closing() && connection->due() <= context_->now) connection->onDue();
    if (!connection->closing()) context_->nextDue = std::min(context_->nextDue, connection->due());
  }
}

void LinkThread::exportChanged(uint64_t exportId) {
  for (const auto& connection : serving_) connection->exportChanged(exportId);
}

void LinkThread::sweep() {
  std::erase_if(serving_, [](const auto& connection) { return connection->gone(); });
}

void LinkThread::tellEvents() { mailbox_->tell(events_); }

void LinkThread::resolve(const std::string& peerKey, const std::string& address) {
  const auto answer = [box = mailbox_, peerKey, address](net::Addresses found) {
    if (!found) found = Error{found.error().code, address + ": " + found.error().detail};
    box->post([peerKey, found = std::move(found)](LinkThread& self) { self.puller().resolved(peerKey, found); });
  };
  const Result<Endpoint> peer = parseEndpoint(address);
  if (!peer || !peer.value().enabled) return answer(Error{Code::invalidArgument, "no address of a link (accepted: ADDRESS:PORT)"});
  net::lookUpAside(peer.value(), answer);
}

}  // namespace fluxon::link::tcp
