// Messages between owners and the master for the log of a run: by what one knows them, and what they name.
#pragma once

#include <ostream>
#include <string_view>
#include <type_traits>

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

// Of a type of messages.h: "PutStart".
template <class T>
std::string_view kindOf() {
  const std::string_view name = __PRETTY_FUNCTION__;
  const size_t end = name.find_first_of(";]", name.find("T = ")), begin = name.rfind(':', end) + 1;
  return name.substr(begin, end - begin);
}

inline void tell(std::ostream& to, const rpc::Request& request) {
  to << "  #" << request.id.value << " ";
  std::visit([&](const auto& body) { tell(to << kindOf<std::decay_t<decltype(body)>>(), body); }, request.body);
}

inline void tell(std::ostream& to, const rpc::Reply& reply) {
  to << "  #" << reply.id.value << " " << codeName(reply.code);
  if (!reply.detail.empty()) to << " (" << reply.detail << ")";
  std::visit([&](const auto& answer) { tell(to, answer); }, reply.answer);
}

inline void tell(std::ostream& to, const rpc::MasterMessage& message) {
  if (const auto* const reply = std::get_if<rpc::Reply>(&message)) return tell(to, *reply);
  std::visit([&](const auto& each) { tell(to << "  " << kindOf<std::decay_t<decltype(each)>>(), each); }, message);
}

}  // namespace fluxon::sim
