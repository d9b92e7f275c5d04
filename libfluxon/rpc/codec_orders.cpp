// Orders of a master, and whatever it sends to an owner.
#include "rpc/codec_parts.h"

namespace fluxon::rpc {

// clang-format off
#define FLUXON_MESSAGES(EACH) \
  EACH(Reply,      REPLY) \
  EACH(Invalidate, INVALIDATE) \
  EACH(Reclaim,    RECLAIM) \
  EACH(Replicate,  REPLICATE) \
  EACH(Stage,      STAGE) \
  EACH(Unstage,    UNSTAGE)
// clang-format on

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

// --- the union

static void encode(const MasterMessage& from, schema::MasterMessage::Builder to) {
  struct Member {
    schema::MasterMessage::Builder to;
    void operator()(const Leave&) { to.setLeave(); }
    void operator()(const Shrink&) { to.setShrink(); }
#define MEMBER(Type, TAG) \
  void operator()(const Type& body) { encode(body, to.init##Type()); }
    FLUXON_MESSAGES(MEMBER)
#undef MEMBER
  };
  std::visit(Member{to}, from);
}

static void decode(schema::MasterMessage::Reader from, MasterMessage& to) {
  using Which = schema::MasterMessage::Which;
  switch (from.which()) {
    case Which::LEAVE: to = Leave(); return;
    case Which::SHRINK: to = Shrink(); return;
#define MEMBER(Type, TAG) \
  case Which::TAG: return into<Type>(to, from.get##Type());
      FLUXON_MESSAGES(MEMBER)
#undef MEMBER
  }
  KJ_FAIL_REQUIRE("unknown message of the master", static_cast<unsigned>(from.which()));
}

void encode(const std::vector<MasterMessage>& from, capnp::List<schema::MasterMessage>::Builder to) { encodeAll(from, to); }
std::vector<MasterMessage> decode(capnp::List<schema::MasterMessage>::Reader from) {
  return decodeAll<MasterMessage, schema::MasterMessage>(from);
}

}  // namespace fluxon::rpc
