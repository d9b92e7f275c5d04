// The C interface: conversions, defaults, and the last error of each thread.
#include <fluxon/fluxon.h>

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "client/client.h"
#include "client/sized.h"

using fluxon::Code;
using fluxon::Error;
using fluxon::PutMode;
using fluxon::Result;
using fluxon::Time;
namespace client = fluxon::client;
namespace shm = fluxon::shm;
using Kind = shm::CommandKind;
using Effect = client::Client::Effect;

struct fluxon_client {
  std::unique_ptr<client::Client> impl;
};

namespace {

thread_local std::string lastError;

// Sizes in the first release: 0.1.
template <class T>
struct First;
#define FLUXON_FIRST(type, bytes)               \
  template <>                                   \
  struct First<type> {                          \
    static constexpr size_t kBytes = bytes;     \
    static constexpr const char* kName = #type; \
  };                                            \
  static_assert(sizeof(type) >= bytes)
FLUXON_FIRST(fluxon_connect_options, 48);
FLUXON_FIRST(fluxon_call_options, 16);
FLUXON_FIRST(fluxon_put_options, 40);
FLUXON_FIRST(fluxon_put_result, 24);
FLUXON_FIRST(fluxon_holder, 56);
FLUXON_FIRST(fluxon_grant, 40);
FLUXON_FIRST(fluxon_stat, 1056);

template <class T>
Error optionsOf(const T* from, T& to) {
  return client::readSized(from, First<T>::kBytes, First<T>::kName, to);
}
// What a call fills or consumes; null only where the call allows it.
template <class T>
Error checkSize(const T* sized) {
  return sized ? client::checkSize(sized, First<T>::kBytes, First<T>::kName) : Error{};
}
// The calling program may know less of it.
template <class T>
void clear(T* sized) {
  if (!client::sameRelease(sized)) return client::writeSized(T{}, sized);
  *sized = T{};
  sized->size = sizeof(T);
}

// Of a holder: `kind` is one of these, with the index of its word above; `handle` the slot that the word names.
enum HolderKind : uint32_t { kNone = 0, kByHazard = 1, kByRing = 2 };
constexpr uint32_t kKindBits = 2;

fluxon_code finish(const Error& error) {
  if (!error.ok()) lastError = error.message();
  return static_cast<fluxon_code>(error.code);
}
template <class T>
const Error& errorOf(const Result<T>& result) {
  static const Error none;
  return result.ok() ? none : result.error();
}
Error errorOf(const Result<client::Reply>& result) {
  if (!result.ok()) return result.error();
  return {result.value().code, result.value().code == Code::ok ? "" : result.value().payload};
}

Time deadlineAfter(uint32_t timeoutMs) {
  return fluxon::bootTime() + fluxon::milliseconds(timeoutMs == 0 ? FLUXON_DEFAULT_TIMEOUT_MS : timeoutMs);
}

// The deadline of a call's options, or what is wrong with them.
Result<Time> deadlineOf(const fluxon_call_options* options) {
  fluxon_call_options known;
  if (Error error = optionsOf(options, known); !error.ok()) return error;
  if (known.reserved != 0)
    return Error{Code::invalidArgument, "fluxon_call_options.reserved is " + std::to_string(known.reserved) + " (accepted: 0)"};
  return deadlineAfter(known.timeout_ms);
}

std::string_view keyOf(const void* key, size_t bytes) { return {static_cast<const char*>(key), bytes}; }

Result<client::Put> putOf(const void* key, size_t keyBytes, uint64_t length, const fluxon_put_options* given) {
  fluxon_put_options options;
  if (Error error = optionsOf(given, options); !error.ok()) return error;
  client::Put put{keyOf(key, keyBytes), length, {}, options.lease, deadlineAfter(options.timeout_ms)};
  if (options.reject_if_exists) put.mode.onExisting = PutMode::OnExisting::reject;
  if (options.reject_if_in_flight) put.mode.onInFlight = PutMode::OnInFlight::reject;
  if (options.replicas > UINT8_MAX) {
    return Error{Code::invalidArgument, "fluxon_put_options.replicas is " + std::to_string(options.replicas) + " (accepted: 0 to 255)"};
  }
  if (options.replicas > 0) put.replicas = static_cast<uint8_t>(options.replicas);
  if (options.source_node) put.sourceNode = options.source_node;
  return put;
}

fluxon_code putEnded(const Result<client::Done>& result, fluxon_put_result* to) {
  if (result && to) client::writeSized({0, result.value().putId.value, result.value().replicas, 0}, to);
  return finish(errorOf(result));
}

Error keyError(size_t bytes, size_t least = 1) {
  if (bytes >= least && bytes <= FLUXON_MAX_KEY_BYTES) return {};
  return {Code::invalidKey,
          std::to_string(bytes) + " bytes (" + std::to_string(least) + " to " + std::to_string(FLUXON_MAX_KEY_BYTES) + ")"};
}

// No exception passes through the C interface. The callbacks of callers are not called within.
template <class Body>
fluxon_code guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    lastError = "out of memory";  // short enough to need none
    return static_cast<fluxon_code>(Code::system);
  }
}

fluxon_code invalid(const char* what) { return finish({Code::invalidArgument, what}); }

}  // namespace

const char* fluxon_sentence(fluxon_code code) { return fluxon::sentence(static_cast<Code>(code)); }
const char* fluxon_code_name(fluxon_code code) { return fluxon::codeName(static_cast<Code>(code)); }
const char* fluxon_last_error(void) { return lastError.c_str(); }

fluxon_code fluxon_connect(const fluxon_connect_options* given, fluxon_client** out) {
  return guarded([&]() -> fluxon_code {
    if (!out) return invalid("client is NULL");
    *out = nullptr;
    fluxon_connect_options options;
    if (const Error error = optionsOf(given, options); !error.ok()) return finish(error);
    const auto text = [](const char* value, const char* otherwise) { return std::string(value ? value : otherwise); };
    Result<std::unique_ptr<client::Client>> connected = client::Client::connect(
        text(options.shm_root, ""), text(options.cluster, "default"), text(options.node, ""),
        text(options.name, program_invocation_short_name), options.prefault != 0, deadlineAfter(options.timeout_ms));
    if (!connected) return finish(connected.error());
    *out = new fluxon_client{std::move(connected).value()};
    return FLUXON_OK;
  });
}
void fluxon_close(fluxon_client* client) { delete client; }
const char* fluxon_node(const fluxon_client* client) { return client ? client->impl->node().c_str() : ""; }

fluxon_code fluxon_get(fluxon_client* client, const void* key, size_t keyBytes, const fluxon_call_options* options, fluxon_holder* holder) {
  return guarded([&]() -> fluxon_code {
    if (!client || !holder || (!key && keyBytes)) return invalid("client, key or holder is NULL");
    fluxon_call_options known;
    if (!client::sameRelease(holder) || !client::sameRelease(options)) [[unlikely]] {
      if (const Error error = checkSize(holder); !error.ok()) return finish(error);
      clear(holder);
      if (const Error error = optionsOf(options, known); !error.ok()) return finish(error);
      options = &known;
    }
    client::Held held;
    const auto deadline = [&] { return deadlineAfter(options ? options->timeout_ms : 0); };
    const Error error = client->impl->get(keyOf(key, keyBytes), deadline, held);
    if (!error.ok()) {
      clear(holder);
      return finish(error);
    }
    // Written member by member where they stay: a copy of what has just been written costs a tenth of a local hit.
    fluxon_holder other;
    fluxon_holder* const to = client::sameRelease(holder) ? holder : &other;
    to->data = held.data;
    to->length = held.length;
    to->put_id = held.putId.value;
    to->source = static_cast<uint32_t>(held.source);
    to->kind = (held.byRing ? kByRing : kByHazard) | held.word << kKindBits;
    to->owner = held.attachment;
    to->handle = held.slotRef;
    if (to != holder) client::writeSized(other, holder);
    return FLUXON_OK;
  });
}

void fluxon_release(fluxon_holder* holder) {
  if (!holder || holder->kind == kNone) return;
  client::Held held;
  held.attachment = static_cast<client::Attachment*>(holder->owner);
  held.byRing = (holder->kind & ((1u << kKindBits) - 1)) == kByRing;
  held.word = holder->kind >> kKindBits;
  held.slotRef = holder->handle;
  clear(holder);
  client::Client::release(held);
}

fluxon_code fluxon_put(fluxon_client* client, const void* key, size_t keyBytes, const void* data, uint64_t length,
                       const fluxon_put_options* options, fluxon_put_result* result) {
  return guarded([&]() -> fluxon_code {
    if (!client || (!key && keyBytes) || (!data && length)) return invalid("client, key or data is NULL");
    if (const Error error = checkSize(result); !error.ok()) return finish(error);
    const Result<client::Put> put = putOf(key, keyBytes, length, options);
    return put ? putEnded(client->impl->put(put.value(), data), result) : finish(put.error());
  });
}

fluxon_code fluxon_put_start(fluxon_client* client, const void* key, size_t keyBytes, uint64_t length, const fluxon_put_options* options,
                             fluxon_grant* grant) {
  return guarded([&]() -> fluxon_code {
    if (!client || !grant || (!key && keyBytes)) return invalid("client, key or grant is NULL");
    if (const Error error = checkSize(grant); !error.ok()) return finish(error);
    clear(grant);
    const Result<client::Put> put = putOf(key, keyBytes, length, options);
    if (!put) return finish(put.error());
    const Result<client::Granted> result = client->impl->putStart(put.value());
    if (!result) return finish(result.error());
    const client::Granted& granted = result.value();
    client::writeSized({0, granted.data, granted.length, granted.attachment, granted.slotRef}, grant);
    return FLUXON_OK;
  });
}

namespace {

// Consumes it.
client::Granted grantedOf(fluxon_grant* grant) {
  const client::Granted granted{static_cast<char*>(grant->data), grant->length, static_cast<client::Attachment*>(grant->owner),
                                grant->handle};
  clear(grant);
  return granted;
}

}  // namespace

fluxon_code fluxon_commit(fluxon_grant* grant, const fluxon_call_options* options, fluxon_put_result* result) {
  return guarded([&]() -> fluxon_code {
    if (!grant || !grant->owner) return invalid("no grant");
    const client::Granted granted = grantedOf(grant);
    Error error = checkSize(result);
    const Result<Time> deadline = deadlineOf(options);
    if (error.ok()) error = errorOf(deadline);
    if (error.ok()) return putEnded(client::Client::commit(granted, deadline.value()), result);
    client::Client::abort(granted);
    return finish(error);
  });
}

void fluxon_abort(fluxon_grant* grant) {
  if (!grant || !grant->owner) return;
  const client::Granted granted = grantedOf(grant);
  (void)guarded([&] {
    client::Client::abort(granted);
    return FLUXON_OK;
  });
}

namespace {

// A command that asks for nothing but its code, or for numbers of the reply.
Result<client::Reply> run(fluxon_client* client, client::Call call, const fluxon_call_options* options, Effect effect) {
  const Result<Time> deadline = deadlineOf(options);
  if (!deadline) return deadline.error();
  call.deadline = deadline.value();
  return client->impl->command(call, effect);
}

}  // namespace

fluxon_code fluxon_exists(fluxon_client* client, const void* key, size_t keyBytes, const fluxon_call_options* options) {
  return guarded([&]() -> fluxon_code {
    if (!client || (!key && keyBytes)) return invalid("client or key is NULL");
    if (const Error error = keyError(keyBytes); !error.ok()) return finish(error);
    return finish(errorOf(run(client, {.kind = Kind::exists, .key = keyOf(key, keyBytes)}, options, Effect::none)));
  });
}

fluxon_code fluxon_stat_key(fluxon_client* client, const void* key, size_t keyBytes, const fluxon_call_options* options,
                            fluxon_stat* stat) {
  return guarded([&]() -> fluxon_code {
    if (!client || !stat || (!key && keyBytes)) return invalid("client, key or stat is NULL");
    if (const Error error = checkSize(stat); !error.ok()) return finish(error);
    clear(stat);
    if (const Error error = keyError(keyBytes); !error.ok()) return finish(error);
    const Result<Time> deadline = deadlineOf(options);
    if (!deadline) return finish(deadline.error());
    const Result<client::Stat> result = client->impl->stat(keyOf(key, keyBytes), deadline.value());
    if (!result) return finish(result.error());
    fluxon_stat known{0, result.value().putId, result.value().length, result.value().lease, {}};
    std::memcpy(known.nodes, result.value().nodes.data(), std::min(result.value().nodes.size(), sizeof known.nodes - 1));
    client::writeSized(known, stat);
    return FLUXON_OK;
  });
}

fluxon_code fluxon_remove(fluxon_client* client, const void* key, size_t keyBytes, const fluxon_call_options* options) {
  return guarded([&]() -> fluxon_code {
    if (!client || (!key && keyBytes)) return invalid("client or key is NULL");
    if (const Error error = keyError(keyBytes); !error.ok()) return finish(error);
    return finish(errorOf(run(client, {.kind = Kind::remove, .key = keyOf(key, keyBytes)}, options, Effect::change)));
  });
}

fluxon_code fluxon_count_prefix(fluxon_client* client, const void* prefix, size_t prefixBytes, const fluxon_call_options* options,
                                uint64_t* count) {
  return guarded([&]() -> fluxon_code {
    if (!client || !count || (!prefix && prefixBytes)) return invalid("client, prefix or count is NULL");
    const Result<client::Reply> result = run(client, {.kind = Kind::countPrefix, .key = keyOf(prefix, prefixBytes)}, options, Effect::none);
    *count = result.ok() ? result.value().valueBytes : 0;
    return finish(errorOf(result));
  });
}

namespace {

// One page of a listing: the entries after `last`, which moves on.
fluxon_code listPage(fluxon_client* client, std::string_view prefix, std::string& last, uint64_t wanted, Time deadline,
                     std::vector<client::Listed>& entries) {
  return guarded([&]() -> fluxon_code {
    entries.clear();
    const client::Call call{.kind = Kind::list, .key = prefix, .extra = last, .valueBytes = wanted, .deadline = deadline};
    const Result<client::Reply> page = client->impl->command(call, Effect::none);
    if (const Error error = errorOf(page); !error.ok()) return finish(error);
    if (page.value().payload.empty()) return FLUXON_OK;
    Result<std::vector<client::Listed>> read = client::readListing(page.value().payload);
    if (!read) return finish(read.error());
    entries = std::move(read).value();
    last = entries.back().key;
    return FLUXON_OK;
  });
}

}  // namespace

fluxon_code fluxon_list(fluxon_client* client, const void* prefix, size_t prefixBytes, const void* after, size_t afterBytes, uint64_t limit,
                        const fluxon_call_options* options, fluxon_list_callback callback, void* context) {
  std::string last;
  Time deadline;
  const fluxon_code begun = guarded([&]() -> fluxon_code {
    if (!client || !callback || (!prefix && prefixBytes) || (!after && afterBytes)) {
      return invalid("client, prefix, after or callback is NULL");
    }
    for (const size_t bytes : {prefixBytes, afterBytes}) {
      if (const Error error = keyError(bytes, 0); !error.ok()) return finish(error);
    }
    const Result<Time> until = deadlineOf(options);
    if (!until) return finish(until.error());
    deadline = until.value();
    last.assign(static_cast<const char*>(after ? after : ""), afterBytes);
    return FLUXON_OK;
  });
  if (begun != FLUXON_OK) return begun;
  std::vector<client::Listed> entries;
  for (uint64_t left = limit == 0 ? UINT64_MAX : limit; left > 0;) {
    const fluxon_code code = listPage(client, keyOf(prefix, prefixBytes), last, std::min<uint64_t>(left, 1024), deadline, entries);
    if (code != FLUXON_OK || entries.empty()) return code;
    for (const client::Listed& entry : entries) {
      const fluxon_listed listed{sizeof listed, entry.key.data(), entry.key.size(), entry.valueBytes, entry.putId};
      if (left-- == 0 || !callback(context, &listed)) return FLUXON_OK;
    }
  }
  return FLUXON_OK;
}

fluxon_code fluxon_lease_grant(fluxon_client* client, uint64_t ttlMs, const fluxon_call_options* options, uint64_t* lease) {
  return guarded([&]() -> fluxon_code {
    if (!client || !lease) return invalid("client or lease is NULL");
    const Result<client::Reply> result = run(client, {.kind = Kind::leaseGrant, .valueBytes = ttlMs}, options, Effect::change);
    *lease = result.ok() ? result.value().lease : 0;
    return finish(errorOf(result));
  });
}

fluxon_code fluxon_lease_keep_alive(fluxon_client* client, uint64_t lease, const fluxon_call_options* options) {
  return guarded([&]() -> fluxon_code {
    if (!client) return invalid("client is NULL");
    return finish(errorOf(run(client, {.kind = Kind::leaseKeepAlive, .lease = lease}, options, Effect::change)));
  });
}

fluxon_code fluxon_lease_revoke(fluxon_client* client, uint64_t lease, const fluxon_call_options* options) {
  return guarded([&]() -> fluxon_code {
    if (!client) return invalid("client is NULL");
    return finish(errorOf(run(client, {.kind = Kind::leaseRevoke, .lease = lease}, options, Effect::change)));
  });
}
