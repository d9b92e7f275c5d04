#include "workload.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <optional>
#include <random>
#include <thread>

#include "cluster.h"

namespace fluxon::test {

Workload::Workload(Shape shape) : shape_(shape), history_(shape.capacity) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  stop_ = new (memory) std::atomic<bool>(false);
}
Workload::~Workload() {
  for (const Client& client : clients_) {
    ::kill(client.pid, SIGKILL);
    waitFor(client.pid);
  }
  ::munmap(stop_, 4096);
}

void Workload::add(const ConnectOptions& options) { clients_.push_back({options, begin(options)}); }

pid_t Workload::begin(const ConnectOptions& options) {
  const uint32_t number = numbers_ += 2;
  return inChild([this, options, number] {
    std::thread other([&] { run(options, number + 1, number + 1); });
    run(options, number, number);
    other.join();
    return 0;
  });
}

void Workload::replace(size_t client) {
  ::kill(clients_[client].pid, SIGKILL);
  waitFor(clients_[client].pid);
  clients_[client].pid = begin(clients_[client].options);
}

bool Workload::finish() {
  *stop_ = true;
  bool all = true;
  for (Client& client : clients_) {
    int status = -1;
    const bool ended = eventually([&] { return ::waitpid(client.pid, &status, WNOHANG) == client.pid; }, 30);
    all &= ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ended) {
      ::kill(client.pid, SIGKILL);
      waitFor(client.pid);
    }
  }
  clients_.clear();
  return all;
}

void Workload::run(const ConnectOptions& options, uint32_t number, unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
  std::optional<fluxon::Client> client;
  std::optional<Holder> held;
  std::string heldText;
  uint32_t heldKey = 0;
  while (!*stop_) {
    std::this_thread::sleep_for(std::chrono::microseconds(shape_.pauseUs));
    try {
      if (!client) client.emplace(options);
    } catch (const Exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    const uint32_t key = pick(shape_.keys);
    const std::string name = "key" + std::to_string(key);
    const uint32_t what = pick(10);
    const Did did = what < 3 ? Did::put : what < 4 ? Did::remove : Did::get;
    const uint64_t operation = history_.begin(did, key, number, shape_.timeoutMs);
    try {
      if (did == Did::put) {
        const size_t bytes = pick(3) == 0 ? pick(static_cast<uint32_t>(shape_.largest)) : pick(5000);
        PutOptions how;
        how.timeoutMs = shape_.timeoutMs;
        how.replicas = pick(4) == 0 ? 2 : 1;
        client->put(name, valueFor(operation, key, bytes), how);
        history_.end(operation, Outcome::done);
      } else if (did == Did::remove) {
        history_.end(operation, client->remove(name, shape_.timeoutMs) ? Outcome::done : Outcome::miss);
      } else if (std::optional<Holder> holder = client->get(name, shape_.timeoutMs)) {
        history_.end(operation, Outcome::done, writerOf(holder->data(), holder->size(), key));
        if (!held && pick(8) == 0) {
          held = std::move(holder);
          heldText.assign(held->text());
          heldKey = key;
        }
      } else {
        history_.end(operation, Outcome::miss);
      }
    } catch (const Exception&) {
      // A get that was refused says nothing; a change may have happened.
      history_.end(operation, did == Did::get ? Outcome::refused : Outcome::unknown);
    }
    // A holder is as it was, whatever happened to its key and its owner.
    if (held && pick(20) == 0) {
      if (held->text() != heldText) {
        const uint64_t changed = history_.begin(Did::get, heldKey, number, shape_.timeoutMs);
        history_.end(changed, Outcome::done, UINT64_MAX);
      }
      held.reset();
    }
  }
}

}  // namespace fluxon::test
