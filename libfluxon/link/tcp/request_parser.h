// Cuts the bytes of a target into requests. Pure: no socket, no clock. The bytes come from anybody who knows the cluster secret; the
// parser trusts nothing else about them.
//
// Invariant: after `broken` the parser parses nothing more. Of what a request asks it checks only the limits of the numbers: `sane` says
// that the piece lies within its value.
#pragma once

#include <string>
#include <string_view>

#include "link/tcp/link_format.h"

namespace fluxon::link::tcp {

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

}  // namespace fluxon::link::tcp
