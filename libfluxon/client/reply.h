// Reply: an owner's answer, copied out of the client's file. The owner may be of another build, or broken: lengths are held against
// what there is, and names and ranges are checked by who follows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/client_format.h"

namespace fluxon::client {

struct Reply {
  Code code = Code::ok;
  uint64_t slotRef = 0;
  uint64_t putId = 0;
  uint64_t offset = 0;
  uint64_t valueBytes = 0;
  uint64_t lease = 0;
  std::string node;
  uint32_t held = 0;  // 1 + index of a held word
  shm::AnswerSource source = shm::AnswerSource::memory;
  std::string payload;
};

// `payload`: the payload area of the command.
Reply readReply(const shm::CommandAnswer&, const char* payload);

struct Listed {
  std::string key;
  uint64_t valueBytes;
  uint64_t putId;
};

// The entries of a page of a listing. protocol: it is cut off within one.
Result<std::vector<Listed>> readListing(const std::string& payload);

}  // namespace fluxon::client
