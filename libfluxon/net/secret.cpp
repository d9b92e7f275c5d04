#include "net/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace fluxon::net {
namespace {

constexpr size_t kLeastBytes = 16, kMostBytes = 4096;

}  // namespace

Result<Secret> Secret::load(const std::string& path) {
  Secret secret;
  if (path.empty()) return secret;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return systemError("open " + path, errno);
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return systemError("stat " + path, errno);
  if (!S_ISREG(info.st_mode)) return Error{Code::badConfig, path + " is not a file"};
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    return Error{Code::denied, path + " belongs to user " + std::to_string(info.st_uid) + ", not to " + std::to_string(::geteuid())};
  if ((info.st_mode & 0077) != 0) return Error{Code::denied, path + " may be read by others (accepted: mode 0600 or 0400)"};
  char buffer[kMostBytes + 1];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return systemError("read " + path, errno);
  secret.bytes_.assign(buffer, static_cast<size_t>(n));
  secret.bytes_.erase(secret.bytes_.find_last_not_of(" \t\r\n") + 1);
  if (secret.bytes_.size() < kLeastBytes || secret.bytes_.size() > kMostBytes) {
    return Error{Code::badConfig, path + " holds " + std::to_string(secret.bytes_.size()) +
                                      " bytes (accepted: " + std::to_string(kLeastBytes) + " to " + std::to_string(kMostBytes) + ")"};
  }
  return secret;
}

Mac Secret::sign(std::string_view message) const {
  Mac mac;
  unsigned length = 0;
  const auto* done = ::HMAC(::EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                            reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(), &length);
  FLUXON_CHECK(done && length == mac.size(), "HMAC-SHA256 failed");
  return mac;
}

bool equal(const Mac& a, const Mac& b) { return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void fillRandom(void* to, size_t bytes) {
  FLUXON_CHECK(bytes <= 256 && ::getrandom(to, bytes, 0) == static_cast<ssize_t>(bytes), "getrandom failed");
}

}  // namespace fluxon::net
