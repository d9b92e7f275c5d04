// Replies of a master, and what they bring.
#include "rpc/codec_parts.h"

namespace fluxon::rpc {

// clang-format off
#define FLUXON_ANSWERS(EACH) \
  EACH(PutGranted,     PUT_GRANTED) \
  EACH(PutElsewhere,   PUT_ELSEWHERE) \
  EACH(PutEnded,       PUT_ENDED) \
  EACH(Reserved,       RESERVED) \
  EACH(ReadAt,         READ_AT) \
  EACH(FetchFrom,      FETCH_FROM) \
  EACH(LoadHere,       LOAD_HERE) \
  EACH(KeyStat,        KEY_STAT) \
  EACH(KeyCount,       KEY_COUNT) \
  EACH(KeyPage,        KEY_PAGE) \
  EACH(LeaseGranted,   LEASE_GRANTED) \
  EACH(InventoryTaken, INVENTORY_TAKEN) \
  EACH(CopyEnded,      COPY_ENDED) \
  EACH(SpreadEnded,    SPREAD_ENDED) \
  EACH(SsdTaken,       SSD_TAKEN)
// clang-format on

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

// --- the union

void encode(const Reply& from, schema::Reply::Builder to) {
  to.setId(from.id.value);
  to.setCode(static_cast<uint16_t>(from.code));
  if (!from.detail.empty()) to.setDetail(textOf(from.detail));
  struct Member {
    schema::Reply::Builder to;
    void operator()(const Done&) { to.setDone(); }
#define MEMBER(Type, TAG) \
  void operator()(const Type& body) { encode(body, to.init##Type()); }
    FLUXON_ANSWERS(MEMBER)
#undef MEMBER
  };
  std::visit(Member{to}, from.answer);
}

void decode(schema::Reply::Reader from, Reply& to) {
  to.id = OperationId(from.getId());
  to.code = codeFromWire(from.getCode());
  to.detail = toString(from.getDetail());
  using Which = schema::Reply::Which;
  switch (from.which()) {
    case Which::DONE: to.answer = Done(); return;
#define MEMBER(Type, TAG) \
  case Which::TAG: return into<Type>(to.answer, from.get##Type());
      FLUXON_ANSWERS(MEMBER)
#undef MEMBER
  }
  KJ_FAIL_REQUIRE("unknown answer of the master", static_cast<unsigned>(from.which()));
}

}  // namespace fluxon::rpc
