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

void encode(const std::vector<uint64_t>& from, capnp::List<uint64_t>::Builder to) {
  for (unsigned i = 0; i < from.size(); ++i) to.set(i, from[i]);
}

void encode(const std::vector<Version>& from, capnp::List<schema::Version>::Builder to) {
  for (unsigned i = 0; i < from.size(); ++i) {
    to[i].setKey(bytesOf(from[i].key));
    to[i].setPutId(from[i].putId.value);
    to[i].setOffset(from[i].offset);
    to[i].setBytes(from[i].bytes);
    to[i].setLease(from[i].lease.value);
    to[i].setSsd(from[i].ssd);
  }
}

std::vector<Version> decode(capnp::List<schema::Version>::Reader from) {
  std::vector<Version> to;
  to.reserve(sizeOf<schema::Version>(from));
  for (const auto item : from)
    to.push_back({toString(item.getKey()), PutId(item.getPutId()), item.getOffset(), item.getBytes(), KeyLeaseId(item.getLease()),
                  item.getSsd()});
  return to;
}

void encode(const Peer& from, schema::Peer::Builder to) {
  to.setNode(textOf(from.node));
  to.setHostId(textOf(from.hostId));
  to.setLink(textOf(from.link));
  to.setIncarnation(from.incarnation.value);
}

Peer decode(schema::Peer::Reader from) {
  return {toString(from.getNode()), toString(from.getHostId()), toString(from.getLink()), Incarnation(from.getIncarnation())};
}

unsigned count(size_t n) { return static_cast<unsigned>(n); }

void encode(const Request& from, schema::Request::Builder to) {
  to.setId(from.id.value);
  to.setKind(static_cast<uint16_t>(from.kind));
  to.setFlags(from.flags);
  if (!from.key.empty()) to.setKey(bytesOf(from.key));
  if (!from.after.empty()) to.setAfter(bytesOf(from.after));
  to.setBytes(from.bytes);
  to.setOffset(from.offset);
  to.setPut(from.put.value);
  to.setLease(from.lease.value);
  to.setTimeLeftMs(from.timeLeftMs);
  to.setTtlMs(from.ttlMs);
  to.setCount(from.count);
  to.setCommand(from.command.value);
  to.setCode(static_cast<uint16_t>(from.code));
  if (!from.offsets.empty()) encode(from.offsets, to.initOffsets(count(from.offsets.size())));
  if (!from.items.empty()) encode(from.items, to.initItems(count(from.items.size())));
  if (!from.results.empty()) {
    auto results = to.initResults(count(from.results.size()));
    for (unsigned i = 0; i < from.results.size(); ++i) results.set(i, static_cast<uint8_t>(from.results[i]));
  }
}

Request decode(schema::Request::Reader from) {
  KJ_REQUIRE(from.getKind() < kRequestKinds, "unknown request kind", from.getKind());
  Request to;
  to.id = OperationId(from.getId());
  to.kind = static_cast<RequestKind>(from.getKind());
  to.flags = from.getFlags();
  to.key = toString(from.getKey());
  to.after = toString(from.getAfter());
  to.bytes = from.getBytes();
  to.offset = from.getOffset();
  to.put = OperationId(from.getPut());
  to.lease = KeyLeaseId(from.getLease());
  to.timeLeftMs = from.getTimeLeftMs();
  to.ttlMs = from.getTtlMs();
  to.count = from.getCount();
  to.command = OperationId(from.getCommand());
  to.code = codeFromWire(from.getCode());
  for (const uint64_t offset : from.getOffsets()) to.offsets.push_back(offset);
  to.items = decode(from.getItems());
  for (const uint8_t result : from.getResults()) {
    KJ_REQUIRE(result <= static_cast<uint8_t>(ReclaimResult::gone), "unknown reclaim result", result);
    to.results.push_back(static_cast<ReclaimResult>(result));
  }
  return to;
}

void encode(const Reply& from, schema::Reply::Builder to) {
  to.setId(from.id.value);
  to.setCode(static_cast<uint16_t>(from.code));
  if (!from.detail.empty()) to.setDetail(textOf(from.detail));
  to.setPutId(from.putId.value);
  to.setPublished(from.published);
  to.setOffset(from.offset);
  to.setBytes(from.bytes);
  to.setCount(from.count);
  to.setLease(from.lease.value);
  if (!from.peer.node.empty()) encode(from.peer, to.initPeer());
  to.setFetch(from.fetch);
  to.setSsd(from.ssd);
  to.setExportId(from.exportId.value);
  to.setSourceOffset(from.sourceOffset);
  if (!from.nodes.empty()) {
    auto nodes = to.initNodes(count(from.nodes.size()));
    for (unsigned i = 0; i < from.nodes.size(); ++i) nodes.set(i, textOf(from.nodes[i]));
  }
  if (!from.offsets.empty()) encode(from.offsets, to.initOffsets(count(from.offsets.size())));
  if (!from.entries.empty()) {
    auto entries = to.initEntries(count(from.entries.size()));
    for (unsigned i = 0; i < from.entries.size(); ++i) {
      entries[i].setKey(bytesOf(from.entries[i].key));
      entries[i].setBytes(from.entries[i].bytes);
      entries[i].setPutId(from.entries[i].putId.value);
    }
  }
}

Reply decode(schema::Reply::Reader from) {
  Reply to;
  to.id = OperationId(from.getId());
  to.code = codeFromWire(from.getCode());
  to.detail = toString(from.getDetail());
  to.putId = PutId(from.getPutId());
  to.published = from.getPublished();
  to.offset = from.getOffset();
  to.bytes = from.getBytes();
  to.count = from.getCount();
  to.lease = KeyLeaseId(from.getLease());
  if (from.hasPeer()) to.peer = decode(from.getPeer());
  to.fetch = from.getFetch();
  to.ssd = from.getSsd();
  to.exportId = ExportId(from.getExportId());
  to.sourceOffset = from.getSourceOffset();
  for (const auto node : from.getNodes()) to.nodes.push_back(toString(node));
  for (const uint64_t offset : from.getOffsets()) to.offsets.push_back(offset);
  to.entries.reserve(sizeOf<schema::ListedKey>(from.getEntries()));
  for (const auto entry : from.getEntries()) {
    to.entries.push_back({toString(entry.getKey()), entry.getBytes(), PutId(entry.getPutId())});
  }
  return to;
}

}  // namespace

void encode(const std::vector<Request>& from, capnp::List<schema::Request>::Builder to) {
  for (unsigned i = 0; i < from.size(); ++i) encode(from[i], to[i]);
}

std::vector<Request> decode(capnp::List<schema::Request>::Reader from) {
  std::vector<Request> to;
  to.reserve(sizeOf<schema::Request>(from));
  for (const auto request : from) to.push_back(decode(request));
  return to;
}

void encode(const std::vector<MasterMessage>& from, capnp::List<schema::MasterMessage>::Builder to) {
  for (unsigned i = 0; i < from.size(); ++i) {
    const MasterMessage& message = from[i];
    if (message.kind == CommandKind::reply) {
      encode(message.reply, to[i].initReply());
      continue;
    }
    if (message.kind == CommandKind::leave) {
      to[i].setLeave();
      continue;
    }
    if (message.kind == CommandKind::shrink) {
      to[i].setShrink();
      continue;
    }
    auto order = message.kind == CommandKind::invalidate  ? to[i].initInvalidate()
                 : message.kind == CommandKind::reclaim   ? to[i].initReclaim()
                 : message.kind == CommandKind::replicate ? to[i].initReplicate()
                 : message.kind == CommandKind::stage     ? to[i].initStage()
                                                          : to[i].initUnstage();
    order.setCommand(message.command.value);
    encode(message.items, order.initItems(count(message.items.size())));
    if (!message.peer.node.empty()) encode(message.peer, order.initPeer());
    order.setExportId(message.exportId.value);
    order.setSourceOffset(message.sourceOffset);
    order.setTimeLeftMs(message.timeLeftMs);
  }
}

std::vector<MasterMessage> decode(capnp::List<schema::MasterMessage>::Reader from) {
  std::vector<MasterMessage> to;
  to.reserve(sizeOf<schema::MasterMessage>(from));
  for (const auto message : from) {
    MasterMessage& out = to.emplace_back();
    schema::Order::Reader order;
    switch (message.which()) {
      case schema::MasterMessage::REPLY: out.reply = decode(message.getReply()); continue;
      case schema::MasterMessage::INVALIDATE: out.kind = CommandKind::invalidate, order = message.getInvalidate(); break;
      case schema::MasterMessage::RECLAIM: out.kind = CommandKind::reclaim, order = message.getReclaim(); break;
      case schema::MasterMessage::REPLICATE: out.kind = CommandKind::replicate, order = message.getReplicate(); break;
      case schema::MasterMessage::STAGE: out.kind = CommandKind::stage, order = message.getStage(); break;
      case schema::MasterMessage::UNSTAGE: out.kind = CommandKind::unstage, order = message.getUnstage(); break;
      case schema::MasterMessage::LEAVE: out.kind = CommandKind::leave; continue;
      case schema::MasterMessage::SHRINK: out.kind = CommandKind::shrink; continue;
      default: KJ_FAIL_REQUIRE("unknown message of the master", static_cast<unsigned>(message.which()));
    }
    out.command = OperationId(order.getCommand());
    out.items = decode(order.getItems());
    if (order.hasPeer()) out.peer = decode(order.getPeer());
    out.exportId = ExportId(order.getExportId());
    out.sourceOffset = order.getSourceOffset();
    out.timeLeftMs = order.getTimeLeftMs();
  }
  return to;
}

void encode(const Registration& from, schema::Registration::Builder to) {
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
