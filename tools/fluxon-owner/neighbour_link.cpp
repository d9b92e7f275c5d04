#include "neighbour_link.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/bell.h"
#include "base/thread.h"
#include "client/copy.h"
#include "shm/fault_guard.h"

namespace fluxon::owner {
namespace {

constexpr Duration kPatience = seconds(5);  // for one copy from an owner that may be stopped

struct Outcome {
  Error error;
  bool attached = true;  // false: the attachment is worth nothing any more
};

// The segment is the neighbour's, whose clients can cut it short. Then the attachment goes, and its mapping with it.
Outcome cutShort() { return {{Code::unavailable, "its segment was cut short"}, false}; }

// False: it was cut short.
bool take(const char* from, const link::Fetch& to) {
  const shm::FaultGuard guard = shm::FaultGuard::losable(from, to.bytes);
  client::copyValue(to.to, from, to.bytes);
  return !guard.broken();
}

Outcome copyExport(client::Client& client, const std::string& node, const link::Fetch& fetch, Time deadline) {
  bool whole = true;
  Error error = client.readFrom(node, fetch.exportOffset, fetch.bytes, deadline, [&](const char* from) { whole = take(from, fetch); });
  return whole ? Outcome{std::move(error)} : cutShort();
}

Outcome copyReadable(client::Client& client, const link::Fetch& fetch, Time deadline) {
  client::Held held;
  if (Error error = client.get(
          fetch.key, [&] { return deadline; }, held);
      !error.ok()) {
    const bool attached = error.code == Code::miss;
    return {std::move(error), attached};
  }
  Outcome outcome;
  if (held.putId != fetch.putId || held.length != fetch.bytes)
    outcome.error = {Code::miss, "another version"};
  else if (!take(static_cast<const char*>(held.data), fetch))
    outcome = cutShort();
  client::Client::release(held);
  return outcome;
}

}  // namespace

NeighbourLink::NeighbourLink(shm::Paths paths, shm::Descriptor bell) : paths_(std::move(paths)), bell_(std::move(bell)) {}

Result<std::unique_ptr<link::Link>> NeighbourLink::start(const shm::Paths& paths) {
  shm::Descriptor bell(bell::make());
  if (!bell) return systemError("eventfd", errno);
  std::unique_ptr<NeighbourLink> link(new NeighbourLink(paths, std::move(bell)));
  Result<std::thread> thread = startThread([self = link.get()] { self->run(); });
  if (!thread) return thread.error();
  link->thread_ = std::move(thread).value();
  return std::unique_ptr<link::Link>(std::move(link));
}

NeighbourLink::~NeighbourLink() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void NeighbourLink::fetch(const link::PeerAddress& peer, std::vector<link::Fetch> fetches) {
  {
    const std::lock_guard lock(mutex_);
    for (link::Fetch& each : fetches) todo_.push_back({peer.node, std::move(each)});
  }
  wake_.notify_one();
}

template <class Which>
void NeighbourLink::cancelIf(Which which) {
  const std::lock_guard lock(mutex_);
  const auto cancelled = [&](const Copy& each) {
    if (!which(each.fetch)) return false;
    events_.fetched.push_back({each.fetch.id, {Code::timedOut, "cancelled"}});
    return true;
  };
  if (std::erase_if(todo_, cancelled) > 0) bell::ring(bell_.get());
}

void NeighbourLink::cancel(uint64_t id) {
  cancelIf([id](const link::Fetch& each) { return each.id == id; });
}

void NeighbourLink::cancelAll() {
  cancelIf([](const link::Fetch&) { return true; });
}

void NeighbourLink::unpublish(uint64_t exportId) {
  const std::lock_guard lock(mutex_);
  events_.unpublished.push_back(exportId);
  bell::ring(bell_.get());
}

link::LinkEvents NeighbourLink::reap() {
  const std::lock_guard lock(mutex_);
  bell::clear(bell_.get());
  return std::exchange(events_, {});
}

// --- the link's thread

void NeighbourLink::run() {
  ::pthread_setname_np(::pthread_self(), "neighbours");
  for (;;) {
    Copy next{};
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return ending_ || !todo_.empty(); });
      if (ending_) return;
      next = std::move(todo_.front());
      todo_.pop_front();
    }
    Error error = copy(next);
    const std::lock_guard lock(mutex_);
    events_.fetched.push_back({next.fetch.id, std::move(error)});
    bell::ring(bell_.get());
  }
}

Error NeighbourLink::copy(const Copy& what) {
  const Time deadline = std::min(what.fetch.deadline, bootTime() + kPatience);
  std::unique_ptr<client::Client>& client = clients_[what.node];
  if (!client) {
    Result<std::unique_ptr<client::Client>> connected =
        client::Client::connect(paths_.root, paths_.cluster, what.node, "neighbour", false, deadline, client::Attachment::As::owner);
    if (!connected) return connected.error();
    client = std::move(connected).value();
  }
  Outcome outcome =
      what.fetch.exportId != 0 ? copyExport(*client, what.node, what.fetch, deadline) : copyReadable(*client, what.fetch, deadline);
  if (!outcome.attached) client = nullptr;
  return std::move(outcome.error);
}

}  // namespace fluxon::owner
