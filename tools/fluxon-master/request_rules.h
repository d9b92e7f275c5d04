// What the kind of a request alone decides.
#pragma once

#include <string>
#include <variant>

#include "rpc/messages.h"

namespace fluxon::master {

// May be carried out more than once: a heartbeat, or an answer to an order, which is known by the order's id. So however far the ids of an
// owner have run ahead, its lease goes on, and nobody waits for it for ever.
inline bool repeatable(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InvalidateDone>() || request.is<rpc::ReclaimDone>() || request.is<rpc::Staged>() ||
         request.is<rpc::Unstaged>();
}

// What an owner that has not listed its values yet may say.
inline bool beforeItHasJoined(const rpc::Request& request) {
  return request.is<rpc::Heartbeat>() || request.is<rpc::InventoryPage>() || request.is<rpc::InvalidateDone>() ||
         request.is<rpc::Release>() || request.is<rpc::Dropped>() || request.is<rpc::SsdLife>() || request.is<rpc::SsdEvicted>();
}

// The key or prefix that a request is about; nullptr: none, or several.
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
