#include "rpc/codec_parts.h"

namespace fluxon::rpc {

void encode(const Version& from, schema::Version::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
}
void decode(schema::Version::Reader from, Version& to) { to = {toString(from.getKey()), PutId(from.getPutId())}; }

void encode(const MemoryReplica& from, schema::MemoryReplica::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setOffset(from.offset);
}
void decode(schema::MemoryReplica::Reader from, MemoryReplica& to) {
  to = {toString(from.getKey()), PutId(from.getPutId()), from.getOffset()};
}

void encode(const MemoryValue& from, schema::MemoryValue::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setOffset(from.offset);
  to.setBytes(from.bytes);
  to.setLease(from.lease.value);
}
void decode(schema::MemoryValue::Reader from, MemoryValue& to) {
  to = {toString(from.getKey()), PutId(from.getPutId()), from.getOffset(), from.getBytes(), KeyLeaseId(from.getLease())};
}

void encode(const SsdValue& from, schema::SsdValue::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
}
void decode(schema::SsdValue::Reader from, SsdValue& to) { to = {toString(from.getKey()), PutId(from.getPutId()), from.getBytes()}; }

void encode(const ListedKey& from, schema::ListedKey::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setBytes(from.bytes);
  to.setPutId(from.putId.value);
}
void decode(schema::ListedKey::Reader from, ListedKey& to) { to = {toString(from.getKey()), from.getBytes(), PutId(from.getPutId())}; }

void encode(const Peer& from, schema::Peer::Builder to) {
  to.setNode(textOf(from.node));
  to.setHostId(textOf(from.hostId));
  to.setLink(textOf(from.link));
  to.setIncarnation(from.incarnation.value);
}
Peer decode(schema::Peer::Reader from) {
  return {toString(from.getNode()), toString(from.getHostId()), toString(from.getLink()), Incarnation(from.getIncarnation())};
}

void encode(const Exported& from, schema::Exported::Builder to) {
  to.setId(from.id.value);
  to.setOffset(from.offset);
}
Exported decode(schema::Exported::Reader from) { return {ExportId(from.getId()), from.getOffset()}; }

static_assert(static_cast<int>(PutMode::OnExisting::reject) == static_cast<int>(schema::PutMode::OnExisting::REJECT));
static_assert(static_cast<int>(PutMode::OnInFlight::reject) == static_cast<int>(schema::PutMode::OnInFlight::REJECT));
static_assert(static_cast<int>(PutMode::Home::here) == static_cast<int>(schema::PutMode::Home::HERE));
void encode(const PutMode& from, schema::PutMode::Builder to) {
  to.setOnExisting(static_cast<schema::PutMode::OnExisting>(from.onExisting));
  to.setOnInFlight(static_cast<schema::PutMode::OnInFlight>(from.onInFlight));
  to.setHome(static_cast<schema::PutMode::Home>(from.home));
}
PutMode decode(schema::PutMode::Reader from) {
  return {enumOf(from.getOnExisting(), PutMode::OnExisting::reject), enumOf(from.getOnInFlight(), PutMode::OnInFlight::reject),
          enumOf(from.getHome(), PutMode::Home::here)};
}

}  // namespace fluxon::rpc
