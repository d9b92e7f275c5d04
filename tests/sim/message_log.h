// Messages between owners and the master for the log of a run: by what one knows them, and what they name.
#pragma once

#include <ostream>

#include "rpc/messages.h"

namespace fluxon::sim {

// The members that a message, or a part of one, has of these.
template <class T>
void tell(std::ostream& to, const T& what) {
  const auto all = [&](const auto& list) {
    for (const auto& each : list) tell(to << " [", each), to << " ]";
  };
  if constexpr (requires { what.key; }) to << " " << what.key;
  if constexpr (requires { what.put; }) to << " put #" << what.put.value;
  if constexpr (requires { what.get; }) to << " get #" << what.get.value;
  if constexpr (requires { what.order; }) to << " order " << what.order.value;
  if constexpr (requires { what.code; })
    if (what.code != Code::ok) to << " " << codeName(what.code);
  if constexpr (requires { what.putId; }) to << " " << toString(what.putId);
  if constexpr (requires { what.published; }) to << (what.published ? " published" : " not published");
  if constexpr (requires { what.owner; }) to << " see " << what.owner.node;
  if constexpr (requires { what.neighbour; }) to << " see " << what.neighbour.node;
  if constexpr (requires { what.source; }) to << " from " << what.source.node;
  if constexpr (requires { what.home; })
    if (what.home) to << " for " << what.home->node;
  if constexpr (requires { what.offset; }) to << " at " << what.offset;
  if constexpr (requires { what.to.offset; }) to << " at " << what.to.offset;
  if constexpr (requires { what.offsets; })
    for (const uint64_t offset : what.offsets) to << " at " << offset;
  if constexpr (requires { what.refused; })
    for (const uint64_t offset : what.refused) to << " not at " << offset;
  if constexpr (requires { what.value.key; }) tell(to, what.value);
  if constexpr (requires { what.values.begin(); }) all(what.values);
  if constexpr (requires { what.replicas.begin(); }) all(what.replicas);
  if constexpr (requires { what.below; }) all(what.below);
  if constexpr (requires { what.memory.begin(); }) all(what.memory);
  if constexpr (requires { what.ssd.begin(); }) to << (what.ssd.empty() ? "" : " ssd"), all(what.ssd);
}

inline void tell(std::ostream& to, const rpc::Request& request) {
  static constexpr const char* kKinds[] = {"heartbeat",     "putStart", "putDone",    "putReserved",    "putAbort",       "reserve",
                                           "release",       "dropped",  "getStart",   "getDone",        "statKey",        "removeKey",
                                           "countKeys",     "listKeys", "leaseGrant", "leaseKeepAlive", "leaseRevoke",    "spread",
                                           "inventoryPage", "ssdLife",  "ssdCommit",  "ssdEvicted",     "invalidateDone", "reclaimDone",
                                           "replicateDone", "staged",   "unstaged"};
  static_assert(std::size(kKinds) == std::variant_size_v<rpc::Request::Body>);
  to << "  #" << request.id.value << " " << kKinds[request.body.index()];
  std::visit([&](const auto& body) { tell(to, body); }, request.body);
}

inline void tell(std::ostream& to, const rpc::Reply& reply) {
  to << "  #" << reply.id.value << " " << codeName(reply.code);
  if (!reply.detail.empty()) to << " (" << reply.detail << ")";
  std::visit([&](const auto& answer) { tell(to, answer); }, reply.answer);
}

inline void tell(std::ostream& to, const rpc::MasterMessage& message) {
  static constexpr const char* kKinds[] = {"", "  invalidate", "  reclaim", "  replicate", "  stage", "  unstage", "  leave", "  shrink"};
  static_assert(std::size(kKinds) == std::variant_size_v<rpc::MasterMessage>);
  to << kKinds[message.index()];
  std::visit([&](const auto& each) { tell(to, each); }, message);
}

}  // namespace fluxon::sim
