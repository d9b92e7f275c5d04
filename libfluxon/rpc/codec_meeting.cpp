// The messages by which an owner introduces itself to a master.
#include "rpc/codec_parts.h"

namespace fluxon::rpc {

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
