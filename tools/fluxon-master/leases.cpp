#include "leases.h"

#include "base/mark.h"

namespace fluxon::master {
namespace {

constexpr uint64_t kLongestMs = uint64_t{365} * 86'400'000;

}  // namespace

void Leases::grant(Member& member, OperationId id, const rpc::LeaseGrant& grant, Time now) {
  const auto least = static_cast<uint64_t>(limits_.least.ms());
  if (grant.ttlMs < least || grant.ttlMs > kLongestMs) {
    return out_.refuse(member, id, Code::invalidArgument,
                       "lease of " + std::to_string(grant.ttlMs) + " ms (accepted: " + std::to_string(least) + " to " +
                           std::to_string(kLongestMs) + " ms)");
  }
  KeyLeases& leases = routes_.leases();
  if (leases.size() >= limits_.most) {
    FLUXON_MARK("master: there are too many key leases");
    return out_.refuse(member, id, Code::tooMany,
                       std::to_string(leases.size()) + " key leases live, no more at once: revoke some, or let them end");
  }
  out_.reply(member, id, rpc::LeaseGranted{leases.grant(term_, milliseconds(static_cast<int64_t>(grant.ttlMs)), now)});
}

void Leases::keepAlive(Member& member, OperationId id, const rpc::LeaseKeepAlive& keepAlive, Time now) {
  if (!routes_.leases().keepAlive(keepAlive.lease, now)) return out_.refuse(member, id, Code::noLease);
  out_.reply(member, id, rpc::Done());
}

// The master acknowledges it like a delete: after every holder has retired its replicas.
void Leases::revoke(Member& member, OperationId id, const rpc::LeaseRevoke& request, Time now) {
  if (!routes_.leases().find(request.lease)) return out_.refuse(member, id, Code::noLease);
  const auto revoke = std::make_shared<Revoke>(Revoke{member, id});
  for (const std::string& key : routes_.leases().end(request.lease)) {
    KeyEntry* const entry = routes_.find(key);
    if (entry && entry->lease == request.lease) changes_.endLeased(*entry, revoke, now);
  }
  if (revoke.use_count() == 1) out_.reply(member, id, rpc::Done());
}

void Leases::tick(Time now, Time heard) {
  while (const KeyLeaseId lease = routes_.leases().expired(heard)) {
    FLUXON_MARK("master: a key lease ends");
    ++counters_.leasesExpired;
    for (const std::string& key : routes_.leases().end(lease)) {
      KeyEntry* const entry = routes_.find(key);
      if (entry && entry->lease == lease) changes_.endLeased(*entry, nullptr, now);
    }
  }
}

}  // namespace fluxon::master
