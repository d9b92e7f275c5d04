// The cluster secret, which only processes of the cluster know. No process sends it; each side of a connection between hosts proves that it
// knows it (handshake.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fluxon::net {

using Mac = std::array<uint8_t, 32>;

class Secret {
 public:
  // No secret: proves nothing, and matches only another without one. For loopback.
  Secret() = default;
  // Reads the bytes of a file, but for white space at its end; "" gives an empty secret. The file must belong to this user or root
  // and be readable by nobody else (0600, 0400). Blocks for the disk. Errors: denied, badConfig (shorter than 16 bytes), system.
  static Result<Secret> load(const std::string& path);

  bool empty() const { return bytes_.empty(); }
  // HMAC-SHA256 of a message.
  Mac sign(std::string_view message) const;

 private:
  std::string bytes_;
};

// In constant time.
bool equal(const Mac&, const Mac&);
// From the kernel. Blocks only before the kernel's generator is seeded.
void fillRandom(void* to, size_t bytes);

}  // namespace fluxon::net
