// Frames of requests as a target sends them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "link/tcp/request_parser.h"

namespace fluxon::fuzz {

inline link::tcp::ReadRequest requestOf(uint64_t tag, const std::string& key, uint64_t keyHash, uint64_t putId, uint64_t valueBytes,
                                        uint64_t offset, uint64_t length, uint64_t exportId = 0) {
  return {{tag, keyHash, putId, exportId, valueBytes, offset, length, static_cast<uint32_t>(key.size()), 0}, key, true};
}

inline std::string frameOf(const std::vector<link::tcp::ReadRequest>& requests) {
  std::string body;
  for (const link::tcp::ReadRequest& each : requests) {
    body.append(reinterpret_cast<const char*>(&each.record), sizeof each.record).append(each.key);
    body.append(link::tcp::paddedKeyBytes(each.key.size()) - each.key.size(), '\0');
  }
  link::tcp::FrameHeader header{{}, link::tcp::kReadKind, static_cast<uint32_t>(requests.size()), static_cast<uint32_t>(body.size())};
  std::memcpy(header.magic, link::tcp::kFrameMagic, sizeof header.magic);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

}  // namespace fluxon::fuzz
