#include "workload.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <deque>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <set>

#include "cluster.h"

namespace fluxon::test {
namespace {

constexpr size_t kMostHeld = 4;
constexpr int kFailed = 3;

struct Held {
  uint64_t get, key;
  Holder holder;
};

// Of a put or delete: what its error says about whether it has happened.
Outcome outcomeOf(fluxon_code code) {
  switch (code) {
    case FLUXON_OK:
    case FLUXON_MISS: return Outcome::done;
    case FLUXON_OUTCOME_UNKNOWN:
    case FLUXON_TIMED_OUT: return Outcome::unknown;
    default: return Outcome::refused;
  }
}

// One client's life.
class Worker {
 public:
  Worker(const Workload::Shape& shape, const std::string& path, uint32_t number)
      : shape_(shape), recorder_(path, number), random_(number) {}

  // False: an error.
  bool step(Client& client, bool& hit) {
    const uint64_t key = random_() % shape_.keys;
    const int dice = static_cast<int>(random_() % 100);
    if (!held_.empty() && random_() % 8 == 0) reread();
    if (dice < shape_.putPercent) return put(client, key);
    if (dice < shape_.putPercent + shape_.removePercent) return remove(client, key);
    return get(client, key, hit);
  }
  void releaseAll() {
    while (!held_.empty()) reread();
  }

 private:
  static std::string name(uint64_t key) { return "key/" + std::to_string(key); }

  bool put(Client& client, uint64_t key) {
    // Small ones go through the ring, large ones are filled in place.
    const double share = static_cast<double>(random_() % 1000) / 1000;
    const size_t bytes = kSmallestValue + static_cast<size_t>(share * share * static_cast<double>(shape_.largest));
    const uint64_t operation = recorder_.begin(Action::put, key, shape_.putDeadlineMs);
    const std::string value = selfDescribing(key, operation, bytes);
    const uint32_t replicas = random_() % 4 == 0 ? 2 : 1;
    const fluxon_code code = codeOf([&] { client.put(name(key), value, {.timeoutMs = shape_.putDeadlineMs, .replicas = replicas}); });
    recorder_.end(outcomeOf(code));
    return code == FLUXON_OK;
  }
  bool remove(Client& client, uint64_t key) {
    recorder_.begin(Action::remove, key, shape_.putDeadlineMs);
    const fluxon_code code = codeOf([&] { client.remove(name(key), shape_.putDeadlineMs); });
    recorder_.end(outcomeOf(code));
    return code == FLUXON_OK;
  }
  bool get(Client& client, uint64_t key, bool& hit) {
    std::optional<Holder> holder;
    const uint64_t operation = recorder_.begin(Action::get, key, shape_.getDeadlineMs);
    const fluxon_code code = codeOf([&] { holder = client.get(name(key), shape_.getDeadlineMs); });
    if (!holder) {
      recorder_.end(code == FLUXON_OK ? Outcome::done : Outcome::refused);
      return code == FLUXON_OK;
    }
    hit = true;
    recorder_.end(Outcome::done, inspect(holder->text()), static_cast<uint8_t>(holder->source()));
    held_.push_back({operation, key, std::move(*holder)});
    if (held_.size() > kMostHeld) reread();
    return true;
  }
  // The oldest holder is looked at once more and released.
  void reread() {
    const Held held = std::move(held_.front());
    held_.pop_front();
    recorder_.begin(Action::reread, held.key, 0, held.get);
    recorder_.end(Outcome::done, inspect(held.holder.text()));
  }

  const Workload::Shape& shape_;
  Recorder recorder_;
  std::mt19937_64 random_;
  std::deque<Held> held_;
};

}  // namespace

Workload::Workload(const Hosts& hosts, Shape shape) : hosts_(hosts), shape_(shape) {
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  shared_ = new (memory) Shared;
}

Workload::~Workload() {
  for (const auto& [client, running] : running_) {
    ::kill(running.pid, SIGKILL);
    ::waitpid(running.pid, nullptr, 0);
  }
  ::munmap(shared_, sizeof(Shared));
}

std::string Workload::file(uint32_t client) const { return hosts_.folder() + "/history-" + std::to_string(client); }

int Workload::work(uint32_t number, const ConnectOptions& options, const Shape& shape) const {
  Worker worker(shape, file(number), number);
  std::unique_ptr<Client> client;
  while (!shared_->end) {
    if (!client) {
      const fluxon_code code = codeOf([&] { client = std::make_unique<Client>(options); });
      if (code != FLUXON_OK) ::usleep(5000);
      continue;
    }
    bool hit = false;
    const bool fine = worker.step(*client, hit);
    ++shared_->operations;
    shared_->hits += hit;
    ::usleep(fine ? shape.pauseUs : 5000);
  }
  worker.releaseAll();
  return 0;
}

uint32_t Workload::start(size_t host, Role role) {
  const uint32_t number = ++count_;
  const ConnectOptions options = hosts_.options(host);
  Shape shape = shape_;
  if (role == Role::reader) shape.putPercent = shape.removePercent = 0;
  running_[number] = {inChild([&] {
    try {
      return work(number, options, shape);
    } catch (const std::exception& error) {
      ::dprintf(2, "client %u: %s\n", number, error.what());
      return kFailed;
    }
  })};
  return number;
}

void Workload::kill(uint32_t client) {
  const Running running = running_.at(client);
  ::kill(running.pid, SIGKILL);
  const int status = waitFor(running.pid);
  CHECK_MESSAGE(status == -SIGKILL, "client " << client << " had ended before: " << status);
  history_.killed(client, bootNs());
  if (running.stoppedNs) history_.stopped(client, running.stoppedNs, bootNs());
  running_.erase(client);
}

void Workload::stop(uint32_t client) {
  Running& running = running_.at(client);
  running.stoppedNs = bootNs();
  REQUIRE(::kill(running.pid, SIGSTOP) == 0);
}

void Workload::resume(uint32_t client) {
  Running& running = running_.at(client);
  REQUIRE(::kill(running.pid, SIGCONT) == 0);
  history_.stopped(client, running.stoppedNs, bootNs());
  running.stoppedNs = 0;
}

std::vector<uint32_t> Workload::clients() const {
  std::vector<uint32_t> all;
  for (const auto& [client, running] : running_) all.push_back(client);
  return all;
}

void Workload::hit(uint64_t wanted, double seconds) const {
  const uint64_t before = hits();
  CHECK_MESSAGE(eventually([&] { return hits() >= before + wanted; }, seconds), (hits() - before) << " of " << wanted << " hits");
}

void Workload::finish() {
  shared_->end = true;
  const double patience = 2 * std::max(shape_.putDeadlineMs, shape_.getDeadlineMs) / 1000.0 + 2;
  for (const auto& [client, running] : running_) {
    int status = 0;
    const bool ended = eventually([&] { return ::waitpid(running.pid, &status, WNOHANG) == running.pid; }, patience);
    CHECK_MESSAGE(ended, "client " << client << " does not end");
    CHECK_MESSAGE(status == 0, "client " << client << " ended with status " << status);
    if (ended) continue;
    ::kill(running.pid, SIGKILL);
    ::waitpid(running.pid, nullptr, 0);
  }
  running_.clear();
  for (uint32_t client = 1; client <= count_; ++client) history_.addFile(file(client));
}

void Workload::judge() const {
  const std::vector<History::Violation> wrong = history_.check();
  for (size_t i = 0; i < wrong.size() && i < 10; ++i) FAIL_CHECK(wrong[i].kind << ": " << wrong[i].what);
  CHECK(wrong.size() == 0);
  const History::Counts counts = history_.counts();
  MESSAGE(counts.puts << " puts, " << counts.removes << " deletes, " << counts.hits << " hits of " << counts.gets << " gets, "
                      << counts.refused << " refused, " << counts.unknown << " unknown, " << counts.rereads << " rereads");
  if (wrong.empty() || !std::getenv("FLUXON_KEEP")) return;
  std::string said;
  test::run("cp -r " + hosts_.folder() + " " + std::getenv("FLUXON_KEEP"), said);
}

}  // namespace fluxon::test
