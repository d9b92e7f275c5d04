// History: what every client of a test did and saw, and whether a cache may behave like that.
//
// Values describe themselves: key, operation that put them, length, and a checksum of it all. A client writes each operation to a
// file of its own before it begins and again when it has ended, so the history of one that is killed is whole. The times are
// CLOCK_BOOTTIME, which all processes of the machine share.
//
// What is judged, per key
//   stale     A get returned a value although another put or delete of the key began after that value's put had ended, and had itself
//             ended before the get began. An operation ends at its answer, or when the first get that saw its value ended. One
//             without an answer, or whose answer was `unknown`, may happen at any time after it began.
//   refused   A get returned a value whose put was refused.
//   future    A get returned a value whose put began after the get had ended.
//   foreign   A get returned bytes that no put of the key wrote.
//   torn      A get returned bytes of a put, but not all of them or not unchanged.
//   changed   A holder that was read again had other bytes.
//   late      A call took more than a second longer than its deadline, not counting the time that its client was stopped.
//   hung      A call of a client that lived to the end has not ended.
// A miss is always legal: counts() tells how much was seen.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fluxon::test {

struct Seen {
  enum class Kind : uint8_t { miss, whole, torn, foreign };
  Kind kind = Kind::miss;
  uint64_t key = 0, operation = 0;  // as the bytes say; not for a miss or foreign bytes
  bool operator==(const Seen&) const = default;
};

constexpr size_t kSmallestValue = 40;
// `bytes`: at least kSmallestValue.
std::string selfDescribing(uint64_t key, uint64_t operation, size_t bytes);
Seen inspect(std::string_view bytes);

enum class Action : uint8_t { put, remove, get, reread };
enum class Outcome : uint8_t { open, done, refused, unknown };

struct Record {
  uint64_t operation = 0;  // number of the client in the upper half, never 0
  uint64_t key = 0;
  uint64_t of = 0;  // reread: the get whose holder it reads
  int64_t beginNs = 0, endNs = 0;
  Seen seen;  // get, reread
  uint32_t deadlineMs = 0;
  Action action = Action::get;
  Outcome outcome = Outcome::open;
  uint8_t source = 0;  // of a hit: fluxon::Source
  uint8_t reserved = 0;
};

inline uint32_t clientOf(uint64_t operation) { return static_cast<uint32_t>(operation >> 32); }

int64_t bootNs();

// The operations of one client, 1 or higher; one thread. The file is made anew.
class Recorder {
 public:
  Recorder(const std::string& path, uint32_t client);
  Recorder(const Recorder&) = delete;
  ~Recorder();

  // The number of the operation.
  uint64_t begin(Action, uint64_t key, uint32_t deadlineMs, uint64_t of = 0);
  void end(Outcome, Seen seen = {}, uint8_t source = 0);  // of the last one begun

 private:
  void write();

  int file_;
  uint32_t client_;
  uint32_t count_ = 0;
  Record last_;
};

class History {
 public:
  struct Counts {
    uint64_t puts = 0, removes = 0, gets = 0, hits = 0, misses = 0, refused = 0, unknown = 0, rereads = 0;
    std::map<uint8_t, uint64_t> hitsBySource;
  };
  struct Violation {
    std::string kind;  // one of the words above
    std::string what;
  };

  void add(const Record& record) { records_.push_back(record); }
  void addFile(const std::string& path);
  // A client did not run between the two.
  void stopped(uint32_t client, int64_t fromNs, int64_t toNs) { stops_[client].push_back({fromNs, toNs}); }
  // A client was killed.
  void killed(uint32_t client, int64_t atNs) { killed_[client] = atNs; }

  std::vector<Violation> check() const;
  Counts counts() const;
  // Everything that was done to a key, in order of beginning: for people.
  std::string ofKey(uint64_t key) const;
  const std::vector<Record>& records() const { return records_; }

 private:
  struct Interval {
    int64_t fromNs, toNs;
  };
  void checkCall(const Record&, std::vector<Violation>&) const;
  void checkReads(std::vector<Violation>&) const;
  void checkKey(const std::vector<const Record*>&, std::vector<Violation>&) const;
  int64_t stoppedNs(uint32_t client, int64_t fromNs, int64_t toNs) const;

  std::vector<Record> records_;
  std::map<uint32_t, std::vector<Interval>> stops_;
  std::map<uint32_t, int64_t> killed_;
};

}  // namespace fluxon::test
