// Cuts the bytes of a target into requests. Pure: no socket, no clock. The bytes come from anybody who knows the cluster secret,
// and are believed in nothing else.
//
// Invariant: after `broken` nothing more is parsed. What a request asks is not judged here but for the limits of its numbers:
// `sane` says that piece and value fit into each other.
#pragma once

#include <string>
#include <string_view>

#include "link/link_format.h"

namespace fluxon::link {

struct ReadRequest {
  ReadRecord record{};
  std::string key;
  bool sane = false;
};

class RequestParser {
 public:
  enum class Outcome { more, request, broken };

  // Takes from the front of `bytes` what it can use. more: hand the rest over again with what follows it, which is less than
  // kMaxRecordBytes. request: `to` is one. broken: `why()` says why; the connection has lost its meaning.
  Outcome next(std::string_view& bytes, ReadRequest& to);
  const char* why() const { return why_; }

 private:
  Outcome fail(const char* why);

  uint32_t recordsLeft_ = 0;  // of the frame
  uint64_t bytesLeft_ = 0;
  const char* why_ = nullptr;
};

}  // namespace fluxon::link
