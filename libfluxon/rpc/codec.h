// Plain messages to and from their Cap'n Proto form. Numbers from the wire that must lie in an enum are checked: an unknown
// kind throws kj::Exception, which fails the call and nothing else.
#pragma once

#include <vector>

#include "rpc/messages.h"
#include "schema/master.capnp.h"

namespace fluxon::rpc {

void encode(const std::vector<Request>&, capnp::List<schema::Request>::Builder);
std::vector<Request> decode(capnp::List<schema::Request>::Reader);

void encode(const std::vector<MasterMessage>&, capnp::List<schema::MasterMessage>::Builder);
std::vector<MasterMessage> decode(capnp::List<schema::MasterMessage>::Reader);

void encode(const Registration&, schema::Registration::Builder);
Registration decode(schema::Registration::Reader);

inline kj::ArrayPtr<const kj::byte> bytesOf(const std::string& text) {
  return kj::arrayPtr(reinterpret_cast<const kj::byte*>(text.data()), text.size());
}
inline std::string toString(capnp::Data::Reader data) { return std::string(reinterpret_cast<const char*>(data.begin()), data.size()); }
inline std::string toString(capnp::Text::Reader text) { return std::string(text.cStr(), text.size()); }
inline capnp::Text::Reader textOf(const std::string& text) { return capnp::Text::Reader(text.c_str(), text.size()); }

}  // namespace fluxon::rpc
