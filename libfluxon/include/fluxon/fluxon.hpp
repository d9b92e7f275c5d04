// Fluxon: the C++ interface of a cache client, over fluxon.h. See fluxon(3). Header only; the standard library alone.
//
//   fluxon::Client client(fluxon::ConnectOptions{.cluster = "prod"});
//   client.put("key", bytes);
//   if (auto holder = client.get("key")) use(holder->bytes());
//
// Outcomes (miss, exists, inFlight) are values; errors are thrown as fluxon::Exception. Holder and Grant are move-only: a holder is
// released, a grant aborted, when it is destroyed.
#pragma once

#if __cplusplus <= 201703L
#error "fluxon.hpp needs C++20: -std=c++20, or CMAKE_CXX_STANDARD 20 in CMake"
#endif

#include <fluxon/fluxon.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace fluxon {

class Exception : public std::runtime_error {
 public:
  Exception(fluxon_code code, const std::string& what) : std::runtime_error(what), code_(code) {}
  fluxon_code code() const noexcept { return code_; }

 private:
  fluxon_code code_;
};

struct ConnectOptions {
  std::string cluster = "default";
  std::string node{};     // empty: the only node of this host
  std::string shmRoot{};  // empty: $FLUXON_SHM_ROOT, else /dev/shm/fluxon-<uid>
  std::string name{};     // empty: the program's name
  uint32_t timeoutMs = 0;
  bool prefault = false;
};

enum class OnExisting { replace, reject };
enum class OnInFlight { allow, reject };

struct PutOptions {
  OnExisting onExisting = OnExisting::replace;
  OnInFlight onInFlight = OnInFlight::allow;
  uint64_t lease = 0;
  uint32_t timeoutMs = 0;
  uint32_t replicas = 1;
  std::string sourceNode;  // a node of this host in whose memory the value is filled; empty: where it shall lie
};

enum class PutOutcome { done, exists, inFlight };
struct PutResult {
  PutOutcome outcome = PutOutcome::done;
  uint64_t putId = 0;
  uint32_t replicas = 0;  // nodes that have the value; fewer than asked for: no others had room, or could be reached
  explicit operator bool() const { return outcome == PutOutcome::done; }
};

enum class Source : uint32_t {
  local = FLUXON_SOURCE_LOCAL,
  neighbour = FLUXON_SOURCE_NEIGHBOUR,
  remote = FLUXON_SOURCE_REMOTE,
  ssd = FLUXON_SOURCE_SSD,
  remoteSsd = FLUXON_SOURCE_REMOTE_SSD
};

class Client;

// The right to read a value; unchanged until destroyed, whatever happens to its key.
class Holder {
 public:
  Holder() { raw_.size = sizeof raw_; }  // of nothing
  Holder(Holder&& other) noexcept : raw_(std::exchange(other.raw_, FLUXON_INIT(fluxon_holder))) {}
  Holder& operator=(Holder&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Holder() { fluxon_release(&raw_); }

  const std::byte* data() const { return static_cast<const std::byte*>(raw_.data); }
  uint64_t size() const { return raw_.length; }
  std::span<const std::byte> bytes() const { return {data(), static_cast<size_t>(size())}; }
  std::string_view text() const { return {static_cast<const char*>(raw_.data), static_cast<size_t>(raw_.length)}; }
  uint64_t putId() const { return raw_.put_id; }
  Source source() const { return static_cast<Source>(raw_.source); }

 private:
  friend class Client;
  fluxon_holder raw_{};
};

namespace detail {
[[noreturn]] inline void fail(fluxon_code code) { throw Exception(code, fluxon_last_error()); }
inline bool okOrMiss(fluxon_code code) {
  if (code != FLUXON_OK && code != FLUXON_MISS) fail(code);
  return code == FLUXON_OK;
}
inline PutResult putResult(fluxon_code code, const fluxon_put_result& result) {
  switch (code) {
    case FLUXON_OK: return {PutOutcome::done, result.put_id, result.replicas};
    case FLUXON_EXISTS: return {PutOutcome::exists};
    case FLUXON_IN_FLIGHT: return {PutOutcome::inFlight};
    default: fail(code);
  }
}
}  // namespace detail

// The right to fill the place of a value. Destroyed without commit: aborted.
class Grant {
 public:
  explicit Grant(const fluxon_grant& raw) : raw_(raw) {}
  Grant(Grant&& other) noexcept : raw_(std::exchange(other.raw_, FLUXON_INIT(fluxon_grant))) {}
  Grant& operator=(Grant&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Grant() { fluxon_abort(&raw_); }

  std::span<std::byte> bytes() { return {static_cast<std::byte*>(raw_.data), static_cast<size_t>(raw_.length)}; }
  PutResult commit(uint32_t timeoutMs = 0) && {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    fluxon_put_result result = FLUXON_INIT(fluxon_put_result);
    const fluxon_code code = fluxon_commit(&raw_, &options, &result);
    return detail::putResult(code, result);
  }
  void abort() && { fluxon_abort(&raw_); }

 private:
  fluxon_grant raw_;
};

struct Stat {
  uint64_t putId = 0;
  uint64_t length = 0;
  uint64_t lease = 0;
  std::string nodes;  // one a line
};

struct ListedKey {
  std::string_view key;
  uint64_t length;
  uint64_t putId;
};

// Thread-safe. Blocking calls end by their timeout; 0 means FLUXON_DEFAULT_TIMEOUT_MS.
class Client {
 public:
  explicit Client(const ConnectOptions& options = {}) {
    const auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    const fluxon_connect_options raw{sizeof raw,         options.cluster.c_str(), text(options.node),        text(options.shmRoot),
                                     text(options.name), options.timeoutMs,       options.prefault ? 1u : 0u};
    if (const fluxon_code code = fluxon_connect(&raw, &raw_); code != FLUXON_OK) detail::fail(code);
  }
  Client(Client&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Client& operator=(Client&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Client() { fluxon_close(raw_); }

  fluxon_client* raw() { return raw_; }
  std::string node() const { return fluxon_node(raw_); }

  std::optional<Holder> get(std::string_view key, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    std::optional<Holder> holder(std::in_place);  // filled in its place: a copy costs a tenth of a local hit
    if (!detail::okOrMiss(fluxon_get(raw_, key.data(), key.size(), &options, &holder->raw_))) holder.reset();
    return holder;
  }
  PutResult put(std::string_view key, std::span<const std::byte> value, const PutOptions& options = {}) {
    const fluxon_put_options raw = convert(options);
    fluxon_put_result result = FLUXON_INIT(fluxon_put_result);
    const fluxon_code code = fluxon_put(raw_, key.data(), key.size(), value.data(), value.size(), &raw, &result);
    return detail::putResult(code, result);
  }
  PutResult put(std::string_view key, std::string_view value, const PutOptions& options = {}) {
    return put(key, std::as_bytes(std::span(value.data(), value.size())), options);
  }
  // nullopt: `outcome` says why.
  std::optional<Grant> putStart(std::string_view key, uint64_t length, const PutOptions& options = {}, PutOutcome* outcome = nullptr) {
    const fluxon_put_options raw = convert(options);
    fluxon_grant grant = FLUXON_INIT(fluxon_grant);
    const PutResult result = detail::putResult(fluxon_put_start(raw_, key.data(), key.size(), length, &raw, &grant), {});
    if (outcome) *outcome = result.outcome;
    if (!result) return std::nullopt;
    return Grant(grant);
  }
  bool exists(std::string_view key, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    return detail::okOrMiss(fluxon_exists(raw_, key.data(), key.size(), &options));
  }
  std::optional<Stat> stat(std::string_view key, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    fluxon_stat raw = FLUXON_INIT(fluxon_stat);
    if (!detail::okOrMiss(fluxon_stat_key(raw_, key.data(), key.size(), &options, &raw))) return std::nullopt;
    return Stat{raw.put_id, raw.length, raw.lease, raw.nodes};
  }
  bool remove(std::string_view key, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    return detail::okOrMiss(fluxon_remove(raw_, key.data(), key.size(), &options));
  }
  uint64_t countPrefix(std::string_view prefix, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    uint64_t count = 0;
    check(fluxon_count_prefix(raw_, prefix.data(), prefix.size(), &options, &count));
    return count;
  }
  // Calls each(ListedKey) in byte order; `each` returns false to stop.
  void list(std::string_view prefix, std::string_view after, uint64_t limit, const std::function<bool(const ListedKey&)>& each,
            uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    const auto callback = [](void* context, const fluxon_listed* raw) -> int {
      const ListedKey listed{{static_cast<const char*>(raw->key), raw->key_bytes}, raw->length, raw->put_id};
      return (*static_cast<const std::function<bool(const ListedKey&)>*>(context))(listed) ? 1 : 0;
    };
    check(fluxon_list(raw_, prefix.data(), prefix.size(), after.data(), after.size(), limit, &options, callback,
                      const_cast<std::function<bool(const ListedKey&)>*>(&each)));
  }
  uint64_t leaseGrant(uint64_t ttlMs, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    uint64_t lease = 0;
    check(fluxon_lease_grant(raw_, ttlMs, &options, &lease));
    return lease;
  }
  void leaseKeepAlive(uint64_t lease, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    check(fluxon_lease_keep_alive(raw_, lease, &options));
  }
  void leaseRevoke(uint64_t lease, uint32_t timeoutMs = 0) {
    const fluxon_call_options options{sizeof options, timeoutMs, 0};
    check(fluxon_lease_revoke(raw_, lease, &options));
  }

 private:
  static void check(fluxon_code code) {
    if (code != FLUXON_OK) detail::fail(code);
  }
  static fluxon_put_options convert(const PutOptions& options) {
    return {sizeof(fluxon_put_options),
            options.timeoutMs,
            options.onExisting == OnExisting::reject ? 1u : 0u,
            options.onInFlight == OnInFlight::reject ? 1u : 0u,
            options.replicas,
            options.lease,
            options.sourceNode.empty() ? nullptr : options.sourceNode.c_str()};
  }
  fluxon_client* raw_ = nullptr;
};

}  // namespace fluxon
