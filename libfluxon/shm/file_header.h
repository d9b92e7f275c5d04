// The first 64 bytes of every file that Fluxon keeps in shared memory. Page: fluxon-shm(5).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fluxon::shm {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free, "shared words must be lock-free");
using Word = std::atomic<uint64_t>;
using Half = std::atomic<uint32_t>;

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t headerBytes;  // offset of the first byte after the file's own header
  uint64_t fileBytes;
  uint64_t incarnation;  // of the process that made the file; an inode is never reused by another one
  uint64_t reserved[4];
};
static_assert(sizeof(FileHeader) == 64);

constexpr uint32_t kFormatVersion = 2;

// Why a header is not that of the expected file, or nullptr. `actualBytes` is what fstat says.
inline const char* refuse(const FileHeader& header, const char (&magic)[9], uint64_t actualBytes) {
  if (actualBytes < sizeof(FileHeader)) return "shorter than a file header";
  if (std::memcmp(header.magic, magic, 8) != 0) return "wrong magic";
  if (header.version != kFormatVersion) return "unknown format version";
  if (header.fileBytes != actualBytes) return "size differs from its header";
  if (header.headerBytes < sizeof(FileHeader) || header.headerBytes > actualBytes) return "header length out of range";
  if (header.incarnation == 0) return "no incarnation";
  return nullptr;
}

}  // namespace fluxon::shm
