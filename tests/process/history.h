// What clients did, and whether a cache may have answered so. Threads and child processes of one test write into one shared log; the
// checker looks at it when all have ended.
//
// The rule, per key: a get must have returned the value of a put of that key such that no other put or delete of it lies wholly between
// the end of that put and the beginning of the get; or a miss. A put or delete without a known outcome may have happened at any time
// after its beginning, or never. A value is whole: it says which operation wrote it, of which key and how long, and the rest of it
// follows from that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fluxon::test {

enum class Did : uint32_t { put, remove, get };
enum class Outcome : uint32_t { open, done, miss, refused, unknown };  // open: its process was killed

struct Operation {
  Did did;
  Outcome ended;
  uint32_t key;
  uint32_t client;
  int64_t begin, end, deadline;  // CLOCK_BOOTTIME, ns
  uint64_t saw;                  // get: the operation whose value it returned
};

class History {
 public:
  // Room for so many operations, in shared memory.
  explicit History(size_t capacity);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  // The number of the operation. Throws when the log is full.
  uint64_t begin(Did did, uint32_t key, uint32_t client, uint32_t timeoutMs);
  void end(uint64_t operation, Outcome ended, uint64_t saw = 0);
  size_t size() const;
  const Operation& at(uint64_t operation) const { return log_[operation]; }
  // For tests of the checker.
  Operation& at(uint64_t operation) { return log_[operation]; }

  // What is wrong, in words; empty: nothing. A call may end a second after its deadline, on a machine that has other things to do.
  std::vector<std::string> check() const;
  size_t count(Did did, Outcome ended) const;

 private:
  struct Shared;
  Shared* shared_;
  Operation* log_;
  size_t capacity_;
};

// The value that an operation writes, at least 32 bytes long, and the operation that wrote a value; UINT64_MAX if it is not whole or not
// of that key.
std::string valueFor(uint64_t operation, uint32_t key, size_t bytes);
uint64_t writerOf(const void* data, size_t bytes, uint32_t key);

}  // namespace fluxon::test
