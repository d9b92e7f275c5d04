#include "rpc/codec.h"

#include <capnp/any.h>
#include <kj/debug.h>

namespace fluxon::rpc {
namespace {

// How many elements there are, once they are known to have bytes: a list of nothing takes as many as its sender likes from us.
template <class Schema>
size_t sizeOf(const typename capnp::List<Schema>::Reader& list) {
  if (list.size() == 0) return 0;
  const capnp::AnyStruct::Reader first = list[0];
  const bool empty = first.getDataSection().size() < sizeof(capnp::word) && first.getPointerSection().size() == 0;
  KJ_REQUIRE(!empty, "a list of nothing", list.size());
  return list.size();
}

unsigned count(size_t n) { return static_cast<unsigned>(n); }

}  // namespace

// --- lists. An absent list is an empty one.

template <class List, class T>
static void encodeNumbers(const std::vector<T>& from, List to) {
  for (unsigned i = 0; i < from.size(); ++i) to.set(i, from[i]);
}
template <class T, class List>
static std::vector<T> decodeNumbers(List from) {
  std::vector<T> to;
  to.reserve(from.size());
  for (const T number : from) to.push_back(number);
  return to;
}

template <class T, class List>
static void encodeAll(const std::vector<T>& from, List to) {
  for (unsigned i = 0; i < from.size(); ++i) encode(from[i], to[i]);
}
template <class T, class Schema>
static std::vector<T> decodeAll(typename capnp::List<Schema>::Reader from) {
  std::vector<T> to;
  to.reserve(sizeOf<Schema>(from));
  for (const auto item : from) decode(item, to.emplace_back());
  return to;
}

// --- parts of messages

static void encode(const Version& from, schema::Version::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
}
static void decode(schema::Version::Reader from, Version& to) { to = {toString(from.getKey()), PutId(from.getPutId())}; }

static void encode(const MemoryReplica& from, schema::MemoryReplica::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setOffset(from.offset);
}
static void decode(schema::MemoryReplica::Reader from, MemoryReplica& to) {
  to = {toString(from.getKey()), PutId(from.getPutId()), from.getOffset()};
}

static void encode(const MemoryValue& from, schema::MemoryValue::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setOffset(from.offset);
  to.setBytes(from.bytes);
  to.setLease(from.lease.value);
}
static void decode(schema::MemoryValue::Reader from, MemoryValue& to) {
  to = {toString(from.getKey()), PutId(from.getPutId()), from.getOffset(), from.getBytes(), KeyLeaseId(from.getLease())};
}

static void encode(const SsdValue& from, schema::SsdValue::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
}
static void decode(schema::SsdValue::Reader from, SsdValue& to) { to = {toString(from.getKey()), PutId(from.getPutId()), from.getBytes()}; }

static void encode(const ListedKey& from, schema::ListedKey::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setBytes(from.bytes);
  to.setPutId(from.putId.value);
}
static void decode(schema::ListedKey::Reader from, ListedKey& to) {
  to = {toString(from.getKey()), from.getBytes(), PutId(from.getPutId())};
}

static void encode(const Peer& from, schema::Peer::Builder to) {
  to.setNode(textOf(from.node));
  to.setHostId(textOf(from.hostId));
  to.setLink(textOf(from.link));
  to.setIncarnation(from.incarnation.value);
}
static Peer decode(schema::Peer::Reader from) {
  return {toString(from.getNode()), toString(from.getHostId()), toString(from.getLink()), Incarnation(from.getIncarnation())};
}

static void encode(const Exported& from, schema::Exported::Builder to) {
  to.setId(from.id.value);
  to.setOffset(from.offset);
}
static Exported decode(schema::Exported::Reader from) { return {ExportId(from.getId()), from.getOffset()}; }

// Enumerators have the same numbers on both sides; what a newer peer may have added is refused.
static_assert(static_cast<int>(PutMode::OnExisting::reject) == static_cast<int>(schema::PutMode::OnExisting::REJECT));
static_assert(static_cast<int>(PutMode::OnInFlight::reject) == static_cast<int>(schema::PutMode::OnInFlight::REJECT));
static_assert(static_cast<int>(PutMode::Home::here) == static_cast<int>(schema::PutMode::Home::HERE));
static_assert(static_cast<int>(NeighbourUse::copy) == static_cast<int>(schema::GetStart::NeighbourUse::COPY));
static_assert(static_cast<int>(NeighbourUse::none) == static_cast<int>(schema::GetStart::NeighbourUse::NONE));
static_assert(static_cast<int>(ReclaimResult::gone) == static_cast<int>(schema::ReclaimDone::Result::GONE));
template <class To, class From>
static To enumOf(From from, To last) {
  KJ_REQUIRE(static_cast<unsigned>(from) <= static_cast<unsigned>(last), "unknown enumerator", static_cast<unsigned>(from));
  return static_cast<To>(from);
}

static void encode(const PutMode& from, schema::PutMode::Builder to) {
  to.setOnExisting(static_cast<schema::PutMode::OnExisting>(from.onExisting));
  to.setOnInFlight(static_cast<schema::PutMode::OnInFlight>(from.onInFlight));
  to.setHome(static_cast<schema::PutMode::Home>(from.home));
}
static PutMode decode(schema::PutMode::Reader from) {
  return {enumOf(from.getOnExisting(), PutMode::OnExisting::reject), enumOf(from.getOnInFlight(), PutMode::OnInFlight::reject),
          enumOf(from.getHome(), PutMode::Home::here)};
}

// --- requests

static void encode(const Heartbeat& from, schema::Heartbeat::Builder to) {
  to.setServing(from.serving);
  if (!from.touched.empty()) encodeNumbers(from.touched, to.initTouched(count(from.touched.size())));
}
static void decode(schema::Heartbeat::Reader from, Heartbeat& to) {
  to.serving = from.getServing();
  to.touched = decodeNumbers<uint64_t>(from.getTouched());
}

static void encode(const PutStart& from, schema::PutStart::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setBytes(from.bytes);
  if (from.mode != PutMode()) encode(from.mode, to.initMode());
  to.setLease(from.lease.value);
  to.setTimeLeftMs(from.timeLeftMs);
  if (!from.onBehalfOf.empty()) to.setOnBehalfOf(textOf(from.onBehalfOf));
}
static void decode(schema::PutStart::Reader from, PutStart& to) {
  to.key = toString(from.getKey());
  to.bytes = from.getBytes();
  to.mode = decode(from.getMode());
  to.lease = KeyLeaseId(from.getLease());
  to.timeLeftMs = from.getTimeLeftMs();
  to.onBehalfOf = toString(from.getOnBehalfOf());
}

static void encode(const PutDone& from, schema::PutDone::Builder to) { to.setPut(from.put.value); }
static void decode(schema::PutDone::Reader from, PutDone& to) { to.put = OperationId(from.getPut()); }

static void encode(const PutReserved& from, schema::PutReserved::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setBytes(from.bytes);
  to.setOffset(from.offset);
  if (from.mode != PutMode()) encode(from.mode, to.initMode());
  to.setLease(from.lease.value);
}
static void decode(schema::PutReserved::Reader from, PutReserved& to) {
  to.key = toString(from.getKey());
  to.bytes = from.getBytes();
  to.offset = from.getOffset();
  to.mode = decode(from.getMode());
  to.lease = KeyLeaseId(from.getLease());
}

static void encode(const PutAbort& from, schema::PutAbort::Builder to) { to.setPut(from.put.value); }
static void decode(schema::PutAbort::Reader from, PutAbort& to) { to.put = OperationId(from.getPut()); }

static void encode(const Reserve& from, schema::Reserve::Builder to) {
  to.setExtentBytes(from.extentBytes);
  to.setCount(from.count);
}
static void decode(schema::Reserve::Reader from, Reserve& to) {
  to.extentBytes = from.getExtentBytes();
  to.count = from.getCount();
}

static void encode(const Release& from, schema::Release::Builder to) {
  encodeNumbers(from.offsets, to.initOffsets(count(from.offsets.size())));
}
static void decode(schema::Release::Reader from, Release& to) { to.offsets = decodeNumbers<uint64_t>(from.getOffsets()); }

static void encode(const Dropped& from, schema::Dropped::Builder to) {
  encodeAll(from.replicas, to.initReplicas(count(from.replicas.size())));
}
static void decode(schema::Dropped::Reader from, Dropped& to) {
  to.replicas = decodeAll<MemoryReplica, schema::MemoryReplica>(from.getReplicas());
}

static void encode(const GetStart& from, schema::GetStart::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setNeighbours(static_cast<schema::GetStart::NeighbourUse>(from.neighbours));
  if (!from.avoid.empty()) to.setAvoid(textOf(from.avoid));
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::GetStart::Reader from, GetStart& to) {
  to.key = toString(from.getKey());
  to.neighbours = enumOf(from.getNeighbours(), NeighbourUse::none);
  to.avoid = toString(from.getAvoid());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const GetDone& from, schema::GetDone::Builder to) {
  to.setGet(from.get.value);
  to.setCode(static_cast<uint16_t>(from.code));
}
static void decode(schema::GetDone::Reader from, GetDone& to) {
  to.get = OperationId(from.getGet());
  to.code = codeFromWire(from.getCode());
}

static void encode(const StatKey& from, schema::StatKey::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::StatKey::Reader from, StatKey& to) {
  to.key = toString(from.getKey());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const RemoveKey& from, schema::RemoveKey::Builder to) {
  to.setKey(bytesOf(from.key));
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::RemoveKey::Reader from, RemoveKey& to) {
  to.key = toString(from.getKey());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const CountKeys& from, schema::CountKeys::Builder to) {
  to.setPrefix(bytesOf(from.prefix));
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::CountKeys::Reader from, CountKeys& to) {
  to.prefix = toString(from.getPrefix());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const ListKeys& from, schema::ListKeys::Builder to) {
  to.setPrefix(bytesOf(from.prefix));
  to.setAfter(bytesOf(from.after));
  to.setLimit(from.limit);
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::ListKeys::Reader from, ListKeys& to) {
  to.prefix = toString(from.getPrefix());
  to.after = toString(from.getAfter());
  to.limit = from.getLimit();
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const LeaseGrant& from, schema::LeaseGrant::Builder to) { to.setTtlMs(from.ttlMs); }
static void decode(schema::LeaseGrant::Reader from, LeaseGrant& to) { to.ttlMs = from.getTtlMs(); }

static void encode(const LeaseKeepAlive& from, schema::LeaseKeepAlive::Builder to) { to.setLease(from.lease.value); }
static void decode(schema::LeaseKeepAlive::Reader from, LeaseKeepAlive& to) { to.lease = KeyLeaseId(from.getLease()); }

static void encode(const LeaseRevoke& from, schema::LeaseRevoke::Builder to) {
  to.setLease(from.lease.value);
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::LeaseRevoke::Reader from, LeaseRevoke& to) {
  to.lease = KeyLeaseId(from.getLease());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const Spread& from, schema::Spread::Builder to) {
  encode(from.value, to.initValue());
  to.setReplicas(from.replicas);
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::Spread::Reader from, Spread& to) {
  decode(from.getValue(), to.value);
  to.replicas = from.getReplicas();
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const InventoryPage& from, schema::InventoryPage::Builder to) {
  if (!from.memory.empty()) encodeAll(from.memory, to.initMemory(count(from.memory.size())));
  if (!from.ssd.empty()) encodeAll(from.ssd, to.initSsd(count(from.ssd.size())));
  to.setPages(from.pages);
}
static void decode(schema::InventoryPage::Reader from, InventoryPage& to) {
  to.memory = decodeAll<MemoryValue, schema::MemoryValue>(from.getMemory());
  to.ssd = decodeAll<SsdValue, schema::SsdValue>(from.getSsd());
  to.pages = from.getPages();
}

static void encode(const SsdLife& from, schema::SsdLife::Builder to) { to.setLife(from.life.value); }
static void decode(schema::SsdLife::Reader from, SsdLife& to) { to.life = Incarnation(from.getLife()); }

static void encode(const SsdCommit& from, schema::SsdCommit::Builder to) {
  encodeAll(from.values, to.initValues(count(from.values.size())));
}
static void decode(schema::SsdCommit::Reader from, SsdCommit& to) { to.values = decodeAll<SsdValue, schema::SsdValue>(from.getValues()); }

static void encode(const SsdEvicted& from, schema::SsdEvicted::Builder to) {
  encodeAll(from.values, to.initValues(count(from.values.size())));
}
static void decode(schema::SsdEvicted::Reader from, SsdEvicted& to) { to.values = decodeAll<Version, schema::Version>(from.getValues()); }

static void encode(const InvalidateDone& from, schema::InvalidateDone::Builder to) { to.setOrder(from.order.value); }
static void decode(schema::InvalidateDone::Reader from, InvalidateDone& to) { to.order = OrderId(from.getOrder()); }

static void encode(const ReclaimDone& from, schema::ReclaimDone::Builder to) {
  to.setOrder(from.order.value);
  auto results = to.initResults(count(from.results.size()));
  for (unsigned i = 0; i < from.results.size(); ++i) results.set(i, static_cast<schema::ReclaimDone::Result>(from.results[i]));
}
static void decode(schema::ReclaimDone::Reader from, ReclaimDone& to) {
  to.order = OrderId(from.getOrder());
  for (const auto result : from.getResults()) to.results.push_back(enumOf(result, ReclaimResult::gone));
}

static void encode(const ReplicateDone& from, schema::ReplicateDone::Builder to) {
  to.setOrder(from.order.value);
  to.setCode(static_cast<uint16_t>(from.code));
}
static void decode(schema::ReplicateDone::Reader from, ReplicateDone& to) {
  to.order = OrderId(from.getOrder());
  to.code = codeFromWire(from.getCode());
}

static void encode(const Staged& from, schema::Staged::Builder to) {
  to.setOrder(from.order.value);
  to.setCode(static_cast<uint16_t>(from.code));
}
static void decode(schema::Staged::Reader from, Staged& to) {
  to.order = OrderId(from.getOrder());
  to.code = codeFromWire(from.getCode());
}

static void encode(const Unstaged& from, schema::Unstaged::Builder to) { to.setOrder(from.order.value); }
static void decode(schema::Unstaged::Reader from, Unstaged& to) { to.order = OrderId(from.getOrder()); }

// --- what replies bring

static void encode(const PutGranted& from, schema::PutGranted::Builder to) {
  to.setPutId(from.putId.value);
  to.setOffset(from.offset);
  if (from.home) encode(*from.home, to.initHome());
}
static void decode(schema::PutGranted::Reader from, PutGranted& to) {
  to.putId = PutId(from.getPutId());
  to.offset = from.getOffset();
  if (from.hasHome()) to.home = decode(from.getHome());
}

static void encode(const PutElsewhere& from, schema::PutElsewhere::Builder to) { encode(from.neighbour, to.initNeighbour()); }
static void decode(schema::PutElsewhere::Reader from, PutElsewhere& to) { to.neighbour = decode(from.getNeighbour()); }

static void encode(const PutEnded& from, schema::PutEnded::Builder to) {
  to.setPutId(from.putId.value);
  to.setPublished(from.published);
}
static void decode(schema::PutEnded::Reader from, PutEnded& to) {
  to.putId = PutId(from.getPutId());
  to.published = from.getPublished();
}

static void encode(const Reserved& from, schema::Reserved::Builder to) {
  encodeNumbers(from.offsets, to.initOffsets(count(from.offsets.size())));
}
static void decode(schema::Reserved::Reader from, Reserved& to) { to.offsets = decodeNumbers<uint64_t>(from.getOffsets()); }

static void encode(const ReadAt& from, schema::ReadAt::Builder to) {
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
  encode(from.owner, to.initOwner());
  to.setSsd(from.ssd);
}
static void decode(schema::ReadAt::Reader from, ReadAt& to) {
  to.putId = PutId(from.getPutId());
  to.bytes = from.getBytes();
  to.owner = decode(from.getOwner());
  to.ssd = from.getSsd();
}

static void encode(const FetchFrom& from, schema::FetchFrom::Builder to) {
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
  to.setOffset(from.offset);
  encode(from.source, to.initSource());
  if (from.exported) encode(*from.exported, to.initExported());
}
static void decode(schema::FetchFrom::Reader from, FetchFrom& to) {
  to.putId = PutId(from.getPutId());
  to.bytes = from.getBytes();
  to.offset = from.getOffset();
  to.source = decode(from.getSource());
  if (from.hasExported()) to.exported = decode(from.getExported());
}

static void encode(const LoadHere& from, schema::LoadHere::Builder to) {
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
  to.setOffset(from.offset);
}
static void decode(schema::LoadHere::Reader from, LoadHere& to) {
  to.putId = PutId(from.getPutId());
  to.bytes = from.getBytes();
  to.offset = from.getOffset();
}

static void encode(const KeyStat& from, schema::KeyStat::Builder to) {
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
  to.setLease(from.lease.value);
  auto nodes = to.initNodes(count(from.nodes.size()));
  for (unsigned i = 0; i < from.nodes.size(); ++i) nodes.set(i, textOf(from.nodes[i]));
}
static void decode(schema::KeyStat::Reader from, KeyStat& to) {
  to.putId = PutId(from.getPutId());
  to.bytes = from.getBytes();
  to.lease = KeyLeaseId(from.getLease());
  for (const auto node : from.getNodes()) to.nodes.push_back(toString(node));
}

static void encode(const KeyCount& from, schema::KeyCount::Builder to) { to.setKeys(from.keys); }
static void decode(schema::KeyCount::Reader from, KeyCount& to) { to.keys = from.getKeys(); }

static void encode(const KeyPage& from, schema::KeyPage::Builder to) { encodeAll(from.keys, to.initKeys(count(from.keys.size()))); }
static void decode(schema::KeyPage::Reader from, KeyPage& to) { to.keys = decodeAll<ListedKey, schema::ListedKey>(from.getKeys()); }

static void encode(const LeaseGranted& from, schema::LeaseGranted::Builder to) { to.setLease(from.lease.value); }
static void decode(schema::LeaseGranted::Reader from, LeaseGranted& to) { to.lease = KeyLeaseId(from.getLease()); }

static void encode(const InventoryTaken& from, schema::InventoryTaken::Builder to) {
  if (!from.refused.empty()) encodeNumbers(from.refused, to.initRefused(count(from.refused.size())));
  if (!from.refusedSsd.empty()) encodeNumbers(from.refusedSsd, to.initRefusedSsd(count(from.refusedSsd.size())));
}
static void decode(schema::InventoryTaken::Reader from, InventoryTaken& to) {
  to.refused = decodeNumbers<uint64_t>(from.getRefused());
  to.refusedSsd = decodeNumbers<uint32_t>(from.getRefusedSsd());
}

static void encode(const CopyEnded& from, schema::CopyEnded::Builder to) {
  to.setPutId(from.putId.value);
  to.setPublished(from.published);
  to.setLease(from.lease.value);
}
static void decode(schema::CopyEnded::Reader from, CopyEnded& to) {
  to.putId = PutId(from.getPutId());
  to.published = from.getPublished();
  to.lease = KeyLeaseId(from.getLease());
}

static void encode(const SpreadEnded& from, schema::SpreadEnded::Builder to) { to.setReplicas(from.replicas); }
static void decode(schema::SpreadEnded::Reader from, SpreadEnded& to) { to.replicas = from.getReplicas(); }

static void encode(const SsdTaken& from, schema::SsdTaken::Builder to) {
  if (!from.ignored.empty()) encodeNumbers(from.ignored, to.initIgnored(count(from.ignored.size())));
}
static void decode(schema::SsdTaken::Reader from, SsdTaken& to) { to.ignored = decodeNumbers<uint32_t>(from.getIgnored()); }

// --- orders

static void encode(const Invalidate& from, schema::Invalidate::Builder to) {
  to.setOrder(from.order.value);
  encodeAll(from.below, to.initBelow(count(from.below.size())));
}
static void decode(schema::Invalidate::Reader from, Invalidate& to) {
  to.order = OrderId(from.getOrder());
  to.below = decodeAll<Version, schema::Version>(from.getBelow());
}

static void encode(const Reclaim& from, schema::Reclaim::Builder to) {
  to.setOrder(from.order.value);
  encodeAll(from.replicas, to.initReplicas(count(from.replicas.size())));
}
static void decode(schema::Reclaim::Reader from, Reclaim& to) {
  to.order = OrderId(from.getOrder());
  to.replicas = decodeAll<MemoryReplica, schema::MemoryReplica>(from.getReplicas());
}

static void encode(const Replicate& from, schema::Replicate::Builder to) {
  to.setOrder(from.order.value);
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
  to.setOffset(from.offset);
  encode(from.source, to.initSource());
  if (from.exported) encode(*from.exported, to.initExported());
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::Replicate::Reader from, Replicate& to) {
  to.order = OrderId(from.getOrder());
  to.key = toString(from.getKey());
  to.putId = PutId(from.getPutId());
  to.bytes = from.getBytes();
  to.offset = from.getOffset();
  to.source = decode(from.getSource());
  if (from.hasExported()) to.exported = decode(from.getExported());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const Stage& from, schema::Stage::Builder to) {
  to.setOrder(from.order.value);
  to.setKey(bytesOf(from.key));
  to.setPutId(from.putId.value);
  to.setBytes(from.bytes);
  encode(from.to, to.initTo());
  to.setTimeLeftMs(from.timeLeftMs);
}
static void decode(schema::Stage::Reader from, Stage& to) {
  to.order = OrderId(from.getOrder());
  to.key = toString(from.getKey());
  to.putId = PutId(from.getPutId());
  to.bytes = from.getBytes();
  to.to = decode(from.getTo());
  to.timeLeftMs = from.getTimeLeftMs();
}

static void encode(const Unstage& from, schema::Unstage::Builder to) {
  to.setOrder(from.order.value);
  to.setExportId(from.exportId.value);
}
static void decode(schema::Unstage::Reader from, Unstage& to) {
  to.order = OrderId(from.getOrder());
  to.exportId = ExportId(from.getExportId());
}

// --- unions: one line a member

template <class To, class Variant, class Reader>
static void into(Variant& to, Reader from) {
  decode(from, to.template emplace<To>());
}

static void encode(const Request& from, schema::Request::Builder to) {
  to.setId(from.id.value);
  struct Member {
    schema::Request::Builder to;
    void operator()(const Heartbeat& from) { encode(from, to.initHeartbeat()); }
    void operator()(const PutStart& from) { encode(from, to.initPutStart()); }
    void operator()(const PutDone& from) { encode(from, to.initPutDone()); }
    void operator()(const PutReserved& from) { encode(from, to.initPutReserved()); }
    void operator()(const PutAbort& from) { encode(from, to.initPutAbort()); }
    void operator()(const Reserve& from) { encode(from, to.initReserve()); }
    void operator()(const Release& from) { encode(from, to.initRelease()); }
    void operator()(const Dropped& from) { encode(from, to.initDropped()); }
    void operator()(const GetStart& from) { encode(from, to.initGetStart()); }
    void operator()(const GetDone& from) { encode(from, to.initGetDone()); }
    void operator()(const StatKey& from) { encode(from, to.initStatKey()); }
    void operator()(const RemoveKey& from) { encode(from, to.initRemoveKey()); }
    void operator()(const CountKeys& from) { encode(from, to.initCountKeys()); }
    void operator()(const ListKeys& from) { encode(from, to.initListKeys()); }
    void operator()(const LeaseGrant& from) { encode(from, to.initLeaseGrant()); }
    void operator()(const LeaseKeepAlive& from) { encode(from, to.initLeaseKeepAlive()); }
    void operator()(const LeaseRevoke& from) { encode(from, to.initLeaseRevoke()); }
    void operator()(const Spread& from) { encode(from, to.initSpread()); }
    void operator()(const InventoryPage& from) { encode(from, to.initInventoryPage()); }
    void operator()(const SsdLife& from) { encode(from, to.initSsdLife()); }
    void operator()(const SsdCommit& from) { encode(from, to.initSsdCommit()); }
    void operator()(const SsdEvicted& from) { encode(from, to.initSsdEvicted()); }
    void operator()(const InvalidateDone& from) { encode(from, to.initInvalidateDone()); }
    void operator()(const ReclaimDone& from) { encode(from, to.initReclaimDone()); }
    void operator()(const ReplicateDone& from) { encode(from, to.initReplicateDone()); }
    void operator()(const Staged& from) { encode(from, to.initStaged()); }
    void operator()(const Unstaged& from) { encode(from, to.initUnstaged()); }
  };
  std::visit(Member{to}, from.body);
}

static void decode(schema::Request::Reader from, Request& to) {
  to.id = OperationId(from.getId());
  using Which = schema::Request::Which;
  switch (from.which()) {
    case Which::HEARTBEAT: return into<Heartbeat>(to.body, from.getHeartbeat());
    case Which::PUT_START: return into<PutStart>(to.body, from.getPutStart());
    case Which::PUT_DONE: return into<PutDone>(to.body, from.getPutDone());
    case Which::PUT_RESERVED: return into<PutReserved>(to.body, from.getPutReserved());
    case Which::PUT_ABORT: return into<PutAbort>(to.body, from.getPutAbort());
    case Which::RESERVE: return into<Reserve>(to.body, from.getReserve());
    case Which::RELEASE: return into<Release>(to.body, from.getRelease());
    case Which::DROPPED: return into<Dropped>(to.body, from.getDropped());
    case Which::GET_START: return into<GetStart>(to.body, from.getGetStart());
    case Which::GET_DONE: return into<GetDone>(to.body, from.getGetDone());
    case Which::STAT_KEY: return into<StatKey>(to.body, from.getStatKey());
    case Which::REMOVE_KEY: return into<RemoveKey>(to.body, from.getRemoveKey());
    case Which::COUNT_KEYS: return into<CountKeys>(to.body, from.getCountKeys());
    case Which::LIST_KEYS: return into<ListKeys>(to.body, from.getListKeys());
    case Which::LEASE_GRANT: return into<LeaseGrant>(to.body, from.getLeaseGrant());
    case Which::LEASE_KEEP_ALIVE: return into<LeaseKeepAlive>(to.body, from.getLeaseKeepAlive());
    case Which::LEASE_REVOKE: return into<LeaseRevoke>(to.body, from.getLeaseRevoke());
    case Which::SPREAD: return into<Spread>(to.body, from.getSpread());
    case Which::INVENTORY_PAGE: return into<InventoryPage>(to.body, from.getInventoryPage());
    case Which::SSD_LIFE: return into<SsdLife>(to.body, from.getSsdLife());
    case Which::SSD_COMMIT: return into<SsdCommit>(to.body, from.getSsdCommit());
    case Which::SSD_EVICTED: return into<SsdEvicted>(to.body, from.getSsdEvicted());
    case Which::INVALIDATE_DONE: return into<InvalidateDone>(to.body, from.getInvalidateDone());
    case Which::RECLAIM_DONE: return into<ReclaimDone>(to.body, from.getReclaimDone());
    case Which::REPLICATE_DONE: return into<ReplicateDone>(to.body, from.getReplicateDone());
    case Which::STAGED: return into<Staged>(to.body, from.getStaged());
    case Which::UNSTAGED: return into<Unstaged>(to.body, from.getUnstaged());
  }
  KJ_FAIL_REQUIRE("unknown request of an owner", static_cast<unsigned>(from.which()));
}

static void encode(const Reply& from, schema::Reply::Builder to) {
  to.setId(from.id.value);
  to.setCode(static_cast<uint16_t>(from.code));
  if (!from.detail.empty()) to.setDetail(textOf(from.detail));
  struct Member {
    schema::Reply::Builder to;
    void operator()(const Done&) { to.setDone(); }
    void operator()(const PutGranted& from) { encode(from, to.initPutGranted()); }
    void operator()(const PutElsewhere& from) { encode(from, to.initPutElsewhere()); }
    void operator()(const PutEnded& from) { encode(from, to.initPutEnded()); }
    void operator()(const Reserved& from) { encode(from, to.initReserved()); }
    void operator()(const ReadAt& from) { encode(from, to.initReadAt()); }
    void operator()(const FetchFrom& from) { encode(from, to.initFetchFrom()); }
    void operator()(const LoadHere& from) { encode(from, to.initLoadHere()); }
    void operator()(const KeyStat& from) { encode(from, to.initKeyStat()); }
    void operator()(const KeyCount& from) { encode(from, to.initKeyCount()); }
    void operator()(const KeyPage& from) { encode(from, to.initKeyPage()); }
    void operator()(const LeaseGranted& from) { encode(from, to.initLeaseGranted()); }
    void operator()(const InventoryTaken& from) { encode(from, to.initInventoryTaken()); }
    void operator()(const CopyEnded& from) { encode(from, to.initCopyEnded()); }
    void operator()(const SpreadEnded& from) { encode(from, to.initSpreadEnded()); }
    void operator()(const SsdTaken& from) { encode(from, to.initSsdTaken()); }
  };
  std::visit(Member{to}, from.answer);
}

static void decode(schema::Reply::Reader from, Reply& to) {
  to.id = OperationId(from.getId());
  to.code = codeFromWire(from.getCode());
  to.detail = toString(from.getDetail());
  using Which = schema::Reply::Which;
  switch (from.which()) {
    case Which::DONE: to.answer = Done(); return;
    case Which::PUT_GRANTED: return into<PutGranted>(to.answer, from.getPutGranted());
    case Which::PUT_ELSEWHERE: return into<PutElsewhere>(to.answer, from.getPutElsewhere());
    case Which::PUT_ENDED: return into<PutEnded>(to.answer, from.getPutEnded());
    case Which::RESERVED: return into<Reserved>(to.answer, from.getReserved());
    case Which::READ_AT: return into<ReadAt>(to.answer, from.getReadAt());
    case Which::FETCH_FROM: return into<FetchFrom>(to.answer, from.getFetchFrom());
    case Which::LOAD_HERE: return into<LoadHere>(to.answer, from.getLoadHere());
    case Which::KEY_STAT: return into<KeyStat>(to.answer, from.getKeyStat());
    case Which::KEY_COUNT: return into<KeyCount>(to.answer, from.getKeyCount());
    case Which::KEY_PAGE: return into<KeyPage>(to.answer, from.getKeyPage());
    case Which::LEASE_GRANTED: return into<LeaseGranted>(to.answer, from.getLeaseGranted());
    case Which::INVENTORY_TAKEN: return into<InventoryTaken>(to.answer, from.getInventoryTaken());
    case Which::COPY_ENDED: return into<CopyEnded>(to.answer, from.getCopyEnded());
    case Which::SPREAD_ENDED: return into<SpreadEnded>(to.answer, from.getSpreadEnded());
    case Which::SSD_TAKEN: return into<SsdTaken>(to.answer, from.getSsdTaken());
  }
  KJ_FAIL_REQUIRE("unknown answer of the master", static_cast<unsigned>(from.which()));
}

static void encode(const MasterMessage& from, schema::MasterMessage::Builder to) {
  struct Member {
    schema::MasterMessage::Builder to;
    void operator()(const Reply& from) { encode(from, to.initReply()); }
    void operator()(const Invalidate& from) { encode(from, to.initInvalidate()); }
    void operator()(const Reclaim& from) { encode(from, to.initReclaim()); }
    void operator()(const Replicate& from) { encode(from, to.initReplicate()); }
    void operator()(const Stage& from) { encode(from, to.initStage()); }
    void operator()(const Unstage& from) { encode(from, to.initUnstage()); }
    void operator()(const Leave&) { to.setLeave(); }
    void operator()(const Shrink&) { to.setShrink(); }
  };
  std::visit(Member{to}, from);
}

static void decode(schema::MasterMessage::Reader from, MasterMessage& to) {
  using Which = schema::MasterMessage::Which;
  switch (from.which()) {
    case Which::REPLY: return into<Reply>(to, from.getReply());
    case Which::INVALIDATE: return into<Invalidate>(to, from.getInvalidate());
    case Which::RECLAIM: return into<Reclaim>(to, from.getReclaim());
    case Which::REPLICATE: return into<Replicate>(to, from.getReplicate());
    case Which::STAGE: return into<Stage>(to, from.getStage());
    case Which::UNSTAGE: return into<Unstage>(to, from.getUnstage());
    case Which::LEAVE: to = Leave(); return;
    case Which::SHRINK: to = Shrink(); return;
  }
  KJ_FAIL_REQUIRE("unknown message of the master", static_cast<unsigned>(from.which()));
}

void encode(const std::vector<Request>& from, capnp::List<schema::Request>::Builder to) { encodeAll(from, to); }
std::vector<Request> decode(capnp::List<schema::Request>::Reader from) { return decodeAll<Request, schema::Request>(from); }

void encode(const std::vector<MasterMessage>& from, capnp::List<schema::MasterMessage>::Builder to) { encodeAll(from, to); }
std::vector<MasterMessage> decode(capnp::List<schema::MasterMessage>::Reader from) {
  return decodeAll<MasterMessage, schema::MasterMessage>(from);
}

void encode(const Registration& from, schema::Registration::Builder to) {
  to.setProtocol(from.protocol);
  to.setNode(textOf(from.node));
  to.setHostId(textOf(from.hostId));
  to.setIncarnation(from.incarnation.value);
  to.setPid(from.pid);
  to.setSegmentBytes(from.segmentBytes);
  to.setMaxKeys(from.maxKeys);
  to.setHttp(textOf(from.http));
  to.setLink(textOf(from.link));
  to.setLabel(textOf(from.label));
  to.setSsdLife(from.ssdLife.value);
  to.setAdopts(from.adopts.value);
  to.setSentNs(static_cast<uint64_t>(from.sent.ns));
  to.setValues(from.values);
  auto ends = to.initEnds(count(from.ends.size()));
  for (unsigned i = 0; i < from.ends.size(); ++i) ends.set(i, from.ends[i].value);
  auto occupied = to.initOccupied(count(from.occupied.size()));
  for (unsigned i = 0; i < from.occupied.size(); ++i) {
    occupied[i].setOffset(from.occupied[i].offset);
    occupied[i].setLength(from.occupied[i].length);
  }
}

Registration decode(schema::Registration::Reader from) {
  Registration to;
  to.protocol = from.getProtocol();
  to.node = toString(from.getNode());
  to.hostId = toString(from.getHostId());
  to.incarnation = Incarnation(from.getIncarnation());
  to.pid = from.getPid();
  to.segmentBytes = from.getSegmentBytes();
  to.maxKeys = from.getMaxKeys();
  to.http = toString(from.getHttp());
  to.link = toString(from.getLink());
  to.label = toString(from.getLabel());
  to.ssdLife = Incarnation(from.getSsdLife());
  to.adopts = Incarnation(from.getAdopts());
  to.sent = Time{static_cast<int64_t>(from.getSentNs())};
  to.values = from.getValues();
  for (const uint64_t life : from.getEnds()) to.ends.push_back(Incarnation(life));
  to.occupied.reserve(sizeOf<schema::Extent>(from.getOccupied()));
  for (const auto extent : from.getOccupied()) to.occupied.push_back({extent.getOffset(), extent.getLength()});
  return to;
}

}  // namespace fluxon::rpc
