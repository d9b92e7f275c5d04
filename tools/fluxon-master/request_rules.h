// Rules that depend only on the kind of a request.
#pragma once

#include <string>
#include <variant>

#include "rpc/messages.h"

namespace fluxon::master {

// The master may carry out the request more than once (it is idempotent): a heartbeat, or an answer to an order, which the order's id
// identifies. So however far an owner's ids have run ahead, its lease goes on and nobody waits for its answers forever.
inline bool repeatable(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InvalidateDone>() || request.is<rpc::ReclaimDone>() || request.is<rpc::Staged>() ||
         request.is<rpc::Unstaged>();
}

// Requests that the master accepts from an owner that has not listed all its values yet.
inline bool beforeItHasJoined(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InventoryPage>() || request.is<rpc::InvalidateDone>() ||
         request.is<rpc::Release>() || request.is<rpc::Dropped>() || request.is<rpc::SsdLife>() || request.is<rpc::SsdEvicted>();
}

// The key or prefix of a request; nullptr: it has none, or several.
inline const std::string* keyOf(const rpc::Request& request) {
  return std::visit(
      [](const auto& body) -> const std::string* {
        if constexpr (requires { body.key; }) {
          return &body.key;
        } else if constexpr (requires { body.prefix; }) {
          return &body.prefix;
        } else if constexpr (requires { body.value.key; }) {
          return &body.value.key;
        } else {
          return nullptr;
        }
      },
      request.body);
}

}  // namespace fluxon::master
