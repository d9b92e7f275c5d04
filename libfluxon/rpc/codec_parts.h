// What the files of the codec share: lists, and the parts of messages that stand in several.
//   codec_requests.cpp   what an owner asks its master
//   codec_replies.cpp    what a reply brings
//   codec_orders.cpp     what a master orders, and all that it sends
//   codec_meeting.cpp    registrations
#pragma once

#include <capnp/any.h>
#include <kj/debug.h>

#include "rpc/codec.h"

namespace fluxon::rpc {

// --- lists. An absent list is an empty one.

inline unsigned count(size_t n) { return static_cast<unsigned>(n); }

// How many elements there are, once they are known to have bytes: a list of nothing takes as many as its sender likes from us.
template <class Schema>
size_t sizeOf(const typename capnp::List<Schema>::Reader& list) {
  if (list.size() == 0) return 0;
  const capnp::AnyStruct::Reader first = list[0];
  const bool empty = first.getDataSection().size() < sizeof(capnp::word) && first.getPointerSection().size() == 0;
  KJ_REQUIRE(!empty, "a list of nothing", list.size());
  return list.size();
}

template <class List, class T>
void encodeNumbers(const std::vector<T>& from, List to) {
  for (unsigned i = 0; i < from.size(); ++i) to.set(i, from[i]);
}
template <class T, class List>
std::vector<T> decodeNumbers(List from) {
  std::vector<T> to;
  to.reserve(from.size());
  for (const T number : from) to.push_back(number);
  return to;
}

template <class T, class List>
void encodeAll(const std::vector<T>& from, List to) {
  for (unsigned i = 0; i < from.size(); ++i) encode(from[i], to[i]);
}
template <class T, class Schema>
std::vector<T> decodeAll(typename capnp::List<Schema>::Reader from) {
  std::vector<T> to;
  to.reserve(sizeOf<Schema>(from));
  for (const auto item : from) decode(item, to.emplace_back());
  return to;
}

// --- parts of messages

void encode(const Version&, schema::Version::Builder);
void decode(schema::Version::Reader, Version&);
void encode(const MemoryReplica&, schema::MemoryReplica::Builder);
void decode(schema::MemoryReplica::Reader, MemoryReplica&);
void encode(const MemoryValue&, schema::MemoryValue::Builder);
void decode(schema::MemoryValue::Reader, MemoryValue&);
void encode(const SsdValue&, schema::SsdValue::Builder);
void decode(schema::SsdValue::Reader, SsdValue&);
void encode(const ListedKey&, schema::ListedKey::Builder);
void decode(schema::ListedKey::Reader, ListedKey&);
void encode(const Peer&, schema::Peer::Builder);
Peer decode(schema::Peer::Reader);
void encode(const Exported&, schema::Exported::Builder);
Exported decode(schema::Exported::Reader);
void encode(const PutMode&, schema::PutMode::Builder);
PutMode decode(schema::PutMode::Reader);

// Enumerators have the same numbers on both sides; what a newer peer may have added is refused.
template <class To, class From>
To enumOf(From from, To last) {
  KJ_REQUIRE(static_cast<unsigned>(from) <= static_cast<unsigned>(last), "unknown enumerator", static_cast<unsigned>(from));
  return static_cast<To>(from);
}

// --- unions: a member is decoded into a variant that has it.

template <class To, class Variant, class Reader>
void into(Variant& to, Reader from) {
  decode(from, to.template emplace<To>());
}

void encode(const Reply&, schema::Reply::Builder);
void decode(schema::Reply::Reader, Reply&);

}  // namespace fluxon::rpc
