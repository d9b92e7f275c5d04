// Requests of an owner. A new one has its struct in schema/master.capnp and in rpc/messages.h, a line in the table and a pair of functions
// here, and a line in MasterCore::dispatch.
#include "rpc/codec_parts.h"

namespace fluxon::rpc {

// clang-format off
#define FLUXON_REQUESTS(EACH) \
  EACH(Heartbeat,      HEARTBEAT) \
  EACH(PutStart,       PUT_START) \
  EACH(PutDone,        PUT_DONE) \
  EACH(PutReserved,    PUT_RESERVED) \
  EACH(PutAbort,       PUT_ABORT) \
  EACH(Reserve,        RESERVE) \
  EACH(Release,        RELEASE) \
  EACH(Dropped,        DROPPED) \
  EACH(GetStart,       GET_START) \
  EACH(GetDone,        GET_DONE) \
  EACH(StatKey,        STAT_KEY) \
  EACH(RemoveKey,      REMOVE_KEY) \
  EACH(CountKeys,      COUNT_KEYS) \
  EACH(ListKeys,       LIST_KEYS) \
  EACH(LeaseGrant,     LEASE_GRANT) \
  EACH(LeaseKeepAlive, LEASE_KEEP_ALIVE) \
  EACH(LeaseRevoke,    LEASE_REVOKE) \
  EACH(Spread,         SPREAD) \
  EACH(InventoryPage,  INVENTORY_PAGE) \
  EACH(SsdLife,        SSD_LIFE) \
  EACH(SsdCommit,      SSD_COMMIT) \
  EACH(SsdEvicted,     SSD_EVICTED) \
  EACH(InvalidateDone, INVALIDATE_DONE) \
  EACH(ReclaimDone,    RECLAIM_DONE) \
  EACH(ReplicateDone,  REPLICATE_DONE) \
  EACH(Staged,         STAGED) \
  EACH(Unstaged,       UNSTAGED)
// clang-format on

static_assert(static_cast<int>(NeighbourUse::copy) == static_cast<int>(schema::GetStart::NeighbourUse::COPY));
static_assert(static_cast<int>(NeighbourUse::none) == static_cast<int>(schema::GetStart::NeighbourUse::NONE));
static_assert(static_cast<int>(ReclaimResult::gone) == static_cast<int>(schema::ReclaimDone::Result::GONE));

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

// --- the union

static void encode(const Request& from, schema::Request::Builder to) {
  to.setId(from.id.value);
  struct Member {
    schema::Request::Builder to;
#define MEMBER(Type, TAG) \
  void operator()(const Type& body) { encode(body, to.init##Type()); }
    FLUXON_REQUESTS(MEMBER)
#undef MEMBER
  };
  std::visit(Member{to}, from.body);
}

static void decode(schema::Request::Reader from, Request& to) {
  to.id = OperationId(from.getId());
  using Which = schema::Request::Which;
  switch (from.which()) {
#define MEMBER(Type, TAG) \
  case Which::TAG: return into<Type>(to.body, from.get##Type());
    FLUXON_REQUESTS(MEMBER)
#undef MEMBER
  }
  KJ_FAIL_REQUIRE("unknown request of an owner", static_cast<unsigned>(from.which()));
}

void encode(const std::vector<Request>& from, capnp::List<schema::Request>::Builder to) { encodeAll(from, to); }
std::vector<Request> decode(capnp::List<schema::Request>::Reader from) { return decodeAll<Request, schema::Request>(from); }

}  // namespace fluxon::rpc
