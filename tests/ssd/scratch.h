// Files with O_DIRECT on the file system that main.cpp has made, aligned memory, and engines over them.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "storage/file_engine.h"

namespace fluxon::ssdd {

constexpr uint64_t kScratchBytes = 96 << 20;
extern std::string scratchFolder;

class Scratch {
 public:
  explicit Scratch(const std::string& name) : path(scratchFolder + "/" + name), fd(::open(path.c_str(), kFlags, 0600)) { REQUIRE(fd >= 0); }
  ~Scratch() {
    close();
    ::unlink(path.c_str());
  }
  Scratch(const Scratch&) = delete;
  void close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  // The bytes as another program sees them.
  std::string content() const {
    const int reader = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::string all(static_cast<size_t>(::lseek(reader, 0, SEEK_END)), '\0');
    REQUIRE(::pread(reader, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
    ::close(reader);
    return all;
  }
  void fill(const std::string& content) const {
    const int writer = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    REQUIRE(::write(writer, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    REQUIRE(::fsync(writer) == 0);
    ::close(writer);
  }

  const std::string path;
  int fd;

 private:
  static constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC;
};

struct Memory {
  explicit Memory(size_t n) : bytes(n), data(static_cast<char*>(std::aligned_alloc(4096, (n + 4095) / 4096 * 4096))) {
    std::memset(data, 0, n);
  }
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  operator iovec() const { return {data, bytes}; }
  bool operator==(const std::string& text) const { return std::string_view(data, bytes) == text; }
  const size_t bytes;
  char* const data;
};

// Bytes that tell where they belong: no two blocks of 512 of the first 128 MiB are alike, and other seeds give other ones.
inline std::string pattern(uint64_t seed, size_t bytes) {
  std::string all(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) {
    const uint64_t value = seed * 0x9e3779b97f4a7c15 + i / 512 * 2654435761 + i % 512 * 7;
    all[i] = static_cast<char>(value >> (i % 4 * 8));
  }
  return all;
}

inline Request reads(FileRef file, uint64_t offset, iovec buffer, uint64_t tag = 0) {
  return {.direction = Direction::read, .file = file, .offset = offset, .buffer = buffer, .tag = tag};
}
inline Request writes(FileRef file, uint64_t offset, iovec buffer, uint64_t tag = 0) {
  return {.direction = Direction::write, .file = file, .offset = offset, .buffer = buffer, .tag = tag};
}

enum class Kind { uring, threads };
constexpr Kind kBoth[] = {Kind::uring, Kind::threads};

inline std::unique_ptr<FileEngine> make(Kind kind, const EngineSettings& settings = {}) {
  if (kind == Kind::threads) return makePsyncEngine(settings).value();
  std::string why;
  auto engine = makeUringEngine(settings, why);
  REQUIRE_MESSAGE(engine, "io_uring: " << why);
  return engine;
}

// All that is pending.
inline std::vector<Completion> all(FileEngine& engine) {
  std::vector<Completion> done;
  engine.wait(engine.pending(), Time::never(), done);
  return done;
}
inline Completion only(FileEngine& engine, const Request& request) {
  REQUIRE(engine.submit(request));
  const auto done = all(engine);
  REQUIRE(done.size() == 1);
  REQUIRE(done[0].tag == request.tag);
  return done[0];
}

}  // namespace fluxon::ssdd
