#include "client/fork.h"

#include <pthread.h>

#include <atomic>

namespace fluxon::client {
namespace {

std::atomic<uint64_t> forks{0};
const int registered = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint64_t forkGeneration() { return forks.load(std::memory_order_relaxed); }

}  // namespace fluxon::client
