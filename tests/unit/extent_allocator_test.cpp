#include "extent_allocator.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace fluxon::master {
namespace {

constexpr uint64_t kPage = kLargeStep;
constexpr uint64_t kGrain = kSmallStep;

std::vector<Extent> usedOf(const ExtentAllocator& allocator) {
  std::vector<Extent> used;
  allocator.forEachUsed([&](Extent extent) { used.push_back(extent); });
  return used;
}

void checkUntouched(const ExtentAllocator& allocator) {
  CHECK(allocator.extentCount() == 0);
  CHECK(allocator.usedBytes() == 0);
  CHECK(allocator.freeBytes() == allocator.capacity());
  CHECK(allocator.largestFree() == allocator.capacity());
  CHECK(usedOf(allocator).empty());
}

// What the action says on stderr before it aborts; empty if it does not abort.
std::string lastWords(const std::function<void()>& action) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);
    ::dup2(ends[1], STDERR_FILENO);
    action();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string words;
  char buffer[256];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) words.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? words : std::string();
}

bool says(const std::string& words, const char* part) { return words.find(part) != std::string::npos; }

// The same contract over a sorted map, by walking everything.
class Model {
 public:
  explicit Model(uint64_t capacity) : capacity_(capacity) {}

  bool isFree(Extent extent) const {
    auto after = used_.lower_bound(extent.offset);
    if (after != used_.end() && after->first < extent.offset + extent.length) return false;
    if (after == used_.begin()) return true;
    --after;
    return after->first + after->second <= extent.offset;
  }
  void take(Extent extent) { used_.emplace(extent.offset, extent.length); }
  void give(Extent extent) { used_.erase(extent.offset); }

  uint64_t usedBytes() const {
    uint64_t sum = 0;
    for (const auto& [offset, length] : used_) sum += length;
    return sum;
  }

  // Whole free pages in a row, else the longest gap inside a page.
  uint64_t largestFree() const {
    uint64_t pages = 0;
    uint64_t gap = 0;
    uint64_t at = 0;
    const auto reach = [&](uint64_t end) {
      const uint64_t firstPage = (at + kPage - 1) / kPage;
      if (end / kPage > firstPage) pages = std::max(pages, end / kPage - firstPage);
      if (end > at) gap = std::max({gap, std::min(end, firstPage * kPage) - at, end % kPage});
    };
    for (const auto& [offset, length] : used_) {
      reach(offset);
      at = offset + length;
    }
    reach(capacity_);
    return pages != 0 ? pages * kPage : gap;
  }

  std::vector<Extent> used() const {
    std::vector<Extent> all;
    for (const auto& [offset, length] : used_) all.push_back({offset, length});
    return all;
  }

 private:
  uint64_t capacity_;
  std::map<uint64_t, uint64_t> used_;
};

TEST_CASE("extent rule: a payload grows to its step") {
  CHECK(extentBytes(0) == 64);
  CHECK(extentBytes(1) == 64);
  CHECK(extentBytes(63) == 64);
  CHECK(extentBytes(64) == 64);
  CHECK(extentBytes(65) == 128);
  CHECK(extentBytes(4032) == 4032);
  CHECK(extentBytes(4095) == 4096);
  CHECK(extentBytes(4096) == 4096);
  CHECK(extentBytes(4097) == 8192);
  CHECK(extentBytes(UINT64_MAX) == UINT64_MAX - 4095);
}

TEST_CASE("extent allocator: an extent has the length and alignment of its payload's step") {
  ExtentAllocator allocator(1 << 20);
  for (const uint64_t payload : {0, 1, 63, 64, 65, 4032, 4095, 4096, 4097, 300000}) {
    const auto extent = allocator.allocate(payload);
    REQUIRE(extent);
    CHECK(extent->length == extentBytes(payload));
    CHECK(extent->offset % (extent->length < kPage ? kGrain : kPage) == 0);
  }
  CHECK(allocator.extentCount() == 10);
}

TEST_CASE("extent allocator: the whole capacity is one extent, a byte more is refused") {
  ExtentAllocator allocator(1 << 20);
  CHECK_FALSE(allocator.allocate(allocator.capacity() + 1));
  const auto all = allocator.allocate(allocator.capacity());
  REQUIRE(all);
  CHECK(*all == Extent{0, 1 << 20});
  CHECK(allocator.largestFree() == 0);
  CHECK_FALSE(allocator.allocate(0));
  allocator.free(*all);
  checkUntouched(allocator);
}

TEST_CASE("extent allocator: payloads near 2^64 are refused") {
  ExtentAllocator allocator(1 << 20);
  for (const uint64_t below : {0, 1, 62, 63, 64, 4094, 4095, 4096, 8192}) CHECK_FALSE(allocator.allocate(UINT64_MAX - below));
  checkUntouched(allocator);
}

TEST_CASE("extent allocator: a capacity is cut to whole pages") {
  CHECK(ExtentAllocator(3 * kPage + 4095).capacity() == 3 * kPage);
  ExtentAllocator none(kPage - 1);
  checkUntouched(none);
  CHECK_FALSE(none.allocate(0));
  CHECK_FALSE(none.adopt({0, kGrain}));
}

TEST_CASE("extent allocator: the shortest hole that fits is taken") {
  ExtentAllocator allocator(15 * kPage);
  for (const uint64_t fence : {5, 9, 14}) REQUIRE(allocator.adopt({fence * kPage, kPage}));
  CHECK(*allocator.allocate(3 * kPage) == Extent{6 * kPage, 3 * kPage});
  CHECK(*allocator.allocate(4 * kPage) == Extent{10 * kPage, 4 * kPage});
  CHECK(*allocator.allocate(5 * kPage) == Extent{0, 5 * kPage});
  CHECK(allocator.freeBytes() == 0);
}

TEST_CASE("extent allocator: neighbours freed in any order become one hole") {
  std::vector<size_t> order{0, 1, 2};
  do {
    ExtentAllocator allocator(12 * kPage);
    std::vector<Extent> held;
    for (int i = 0; i < 3; ++i) held.push_back(*allocator.allocate(4 * kPage));
    for (const size_t i : order) allocator.free(held[i]);
    checkUntouched(allocator);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("extent allocator: holes longer than any bin are found by best fit too") {
  constexpr uint64_t kGiB = 1 << 30;
  ExtentAllocator allocator(16 * kGiB);
  CHECK(allocator.adopt({2 * kGiB, kPage}));
  CHECK(allocator.adopt({5 * kGiB, kPage}));
  CHECK(allocator.largestFree() == 11 * kGiB - kPage);
  const auto extent = allocator.allocate(2 * kGiB);
  REQUIRE(extent);
  CHECK(*extent == Extent{0, 2 * kGiB});
  CHECK(allocator.allocate(2 * kGiB)->offset < 5 * kGiB);
  CHECK(allocator.largestFree() == 11 * kGiB - kPage);
}

TEST_CASE("extent allocator: small extents share a page, which is returned when it is empty") {
  ExtentAllocator allocator(2 * kPage);
  std::vector<Extent> held;
  for (int i = 0; i < 64; ++i) held.push_back(*allocator.allocate(kGrain));
  CHECK(allocator.largestFree() == kPage);
  for (size_t i = 1; i < held.size(); ++i) allocator.free(held[i]);
  CHECK(allocator.largestFree() == kPage);
  allocator.free(held[0]);
  checkUntouched(allocator);
}

TEST_CASE("extent allocator: a small extent goes where the gap is tightest") {
  ExtentAllocator allocator(2 * kPage);
  CHECK(allocator.adopt({0, 3200}));
  CHECK(allocator.adopt({kPage, 3584}));
  CHECK(allocator.allocate(512)->offset == kPage + 3584);
  CHECK(allocator.allocate(512)->offset == 3200);
  CHECK(allocator.largestFree() == kPage - 3712);
}

TEST_CASE("extent allocator: a full segment still takes what fits into a grain page") {
  ExtentAllocator allocator(2 * kPage);
  REQUIRE(allocator.allocate(kPage));
  REQUIRE(allocator.allocate(4000));
  CHECK(allocator.largestFree() == 64);
  CHECK_FALSE(allocator.allocate(65));
  CHECK(allocator.allocate(64));
  CHECK(allocator.largestFree() == 0);
  CHECK(allocator.freeBytes() == 0);
}

TEST_CASE("extent allocator: adopt takes exactly the given range") {
  ExtentAllocator allocator(16 * kPage);
  CHECK(allocator.adopt({4 * kPage, 2 * kPage}));
  CHECK(allocator.adopt({0, kPage}));
  CHECK(allocator.adopt({15 * kPage, kPage}));
  CHECK(allocator.adopt({8 * kPage + 192, 128}));
  CHECK(allocator.adopt({8 * kPage + 320, 4096 - 320}));
  CHECK(
      usedOf(allocator) ==
      std::vector<Extent>{{0, kPage}, {4 * kPage, 2 * kPage}, {8 * kPage + 192, 128}, {8 * kPage + 320, 4096 - 320}, {15 * kPage, kPage}});
  CHECK(allocator.usedBytes() == 4 * kPage + 128 + 4096 - 320);
  for (const Extent extent : usedOf(allocator)) allocator.free(extent);
  checkUntouched(allocator);
}

TEST_CASE("extent allocator: adopt refuses what overlaps a used extent") {
  ExtentAllocator allocator(16 * kPage);
  REQUIRE(allocator.adopt({4 * kPage, 2 * kPage}));
  REQUIRE(allocator.adopt({8 * kPage + 128, 128}));
  for (const Extent extent : std::vector<Extent>{{4 * kPage, 2 * kPage},
                                                 {3 * kPage, 2 * kPage},
                                                 {5 * kPage, 2 * kPage},
                                                 {3 * kPage, 4 * kPage},
                                                 {4 * kPage, 64},
                                                 {5 * kPage + 64, 64},
                                                 {8 * kPage, kPage},
                                                 {7 * kPage, 2 * kPage},
                                                 {8 * kPage + 64, 128},
                                                 {8 * kPage + 192, 64}}) {
    CAPTURE(extent.offset);
    CAPTURE(extent.length);
    CHECK_FALSE(allocator.adopt(extent));
  }
  CHECK(allocator.extentCount() == 2);
}

TEST_CASE("extent allocator: adopt refuses what allocate could not have returned") {
  ExtentAllocator allocator(16 * kPage);
  for (const Extent extent : std::vector<Extent>{{0, 0},
                                                 {0, 63},
                                                 {0, kPage + 64},
                                                 {32, 64},
                                                 {64, kPage},
                                                 {kPage - 64, 128},
                                                 {16 * kPage, 64},
                                                 {15 * kPage, 2 * kPage},
                                                 {0, 17 * kPage},
                                                 {UINT64_MAX - kPage + 1, kPage},
                                                 {kPage, UINT64_MAX - kPage + 1}}) {
    CAPTURE(extent.offset);
    CAPTURE(extent.length);
    CHECK_FALSE(allocator.adopt(extent));
  }
  checkUntouched(allocator);
}

TEST_CASE("extent allocator: freeing what is not a used extent aborts and says which") {
  ExtentAllocator allocator(16 * kPage);
  REQUIRE(allocator.adopt({4 * kPage, 2 * kPage}));
  REQUIRE(allocator.adopt({8 * kPage, 128}));
  REQUIRE(allocator.adopt({8 * kPage + 128, 128}));
  const auto wordsOf = [&](Extent extent) { return lastWords([&] { allocator.free(extent); }); };
  CHECK(says(wordsOf({0, kPage}), "unused extent: offset 0 length 4096"));
  CHECK(says(wordsOf({4 * kPage, kPage}), "another length"));
  CHECK(says(wordsOf({4 * kPage, 3 * kPage}), "another length"));
  CHECK(says(wordsOf({5 * kPage, kPage}), "unused extent"));
  CHECK(says(wordsOf({4 * kPage, 64}), "another grain"));
  CHECK(says(wordsOf({8 * kPage, kPage}), "another grain"));
  CHECK(says(wordsOf({8 * kPage, 64}), "unused extent"));
  CHECK(says(wordsOf({8 * kPage, 256}), "unused extent"));
  CHECK(says(wordsOf({8 * kPage + 64, 64}), "unused extent"));
  CHECK(says(wordsOf({8 * kPage + 256, 64}), "unused extent"));
  CHECK(says(wordsOf({16 * kPage, kPage}), "impossible extent"));
  const Extent once{4 * kPage, 2 * kPage};
  CHECK(says(lastWords([&] { allocator.free(once), allocator.free(once); }), "unused extent"));
  CHECK(lastWords([&] { allocator.free(once); }).empty());
}

TEST_CASE("bit tree: neighbours are found across words and levels") {
  extent_maps::BitTree tree(300000);
  for (const uint64_t bit : {0, 63, 64, 4095, 4096, 299999}) tree.set(bit);
  CHECK(tree.next(1) == 63);
  CHECK(tree.next(64) == 64);
  CHECK(tree.next(65) == 4095);
  CHECK(tree.next(4097) == 299999);
  CHECK(tree.prev(299998) == 4096);
  CHECK(tree.prev(4094) == 64);
  CHECK(tree.prev(62) == 0);
  tree.clear(4096);
  tree.clear(299999);
  CHECK(tree.next(4096) == extent_maps::kNoBit);
  CHECK(tree.prev(299999) == 4095);
  tree.clear(0);
  CHECK(tree.prev(62) == extent_maps::kNoBit);
}

// Sizes that collide in all grains: mostly small, some pages, a few long runs.
uint64_t anyPayload(std::mt19937_64& random) {
  switch (random() % 4) {
    case 0: return random() % 4096;
    case 1: return random() % 512;
    case 2: return 1 + random() % (4 * kPage);
    default: return 1 + random() % (40 * kPage);
  }
}

Extent anyRange(std::mt19937_64& random, uint64_t capacity) {
  const uint64_t length = extentBytes(anyPayload(random));
  const uint64_t step = length < kPage ? kGrain : kPage;
  Extent range{random() % (capacity / step) * step, length};
  if (length < kPage && range.offset % kPage + length > kPage) range.offset -= range.offset % kPage;
  if (range.offset + length > capacity) range.offset = capacity - length;
  return range;
}

TEST_CASE("extent allocator: random calls agree with a naive model") {
  constexpr uint64_t kCapacity = 256 * kPage;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    ExtentAllocator allocator(kCapacity);
    Model model(kCapacity);
    std::vector<Extent> held;
    for (int step = 0; step < 20000; ++step) {
      const uint64_t choice = random() % 16;
      if (choice < 7) {
        const uint64_t payload = anyPayload(random);
        const bool fits = extentBytes(payload) <= allocator.largestFree();
        const auto extent = allocator.allocate(payload);
        REQUIRE(extent.has_value() == fits);
        if (extent) {
          REQUIRE(extent->length == extentBytes(payload));
          REQUIRE(extent->offset + extent->length <= kCapacity);
          REQUIRE(model.isFree(*extent));
          model.take(*extent);
          held.push_back(*extent);
        }
      } else if (choice == 7) {
        const Extent range = anyRange(random, kCapacity);
        const bool isFree = model.isFree(range);
        REQUIRE(allocator.adopt(range) == isFree);
        if (isFree) {
          model.take(range);
          held.push_back(range);
        }
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        allocator.free(held.back());
        model.give(held.back());
        held.pop_back();
      }
      REQUIRE(allocator.extentCount() == held.size());
      REQUIRE(allocator.usedBytes() == model.usedBytes());
      REQUIRE(allocator.usedBytes() + allocator.freeBytes() == kCapacity);
      REQUIRE(allocator.largestFree() == model.largestFree());
      if (step % 100 == 0) REQUIRE(usedOf(allocator) == model.used());
    }
    for (const Extent extent : held) allocator.free(extent);
    checkUntouched(allocator);
  }
}

TEST_CASE("extent allocator: one rebuilt from an inventory in any order equals the lost one") {
  std::mt19937_64 random(5);
  ExtentAllocator lost(1024 * kPage);
  std::vector<Extent> held;
  for (int i = 0; i < 3000; ++i) {
    if (const auto extent = lost.allocate(anyPayload(random))) held.push_back(*extent);
    if (i % 3 != 0) continue;
    std::swap(held[random() % held.size()], held.back());
    lost.free(held.back());
    held.pop_back();
  }
  std::shuffle(held.begin(), held.end(), random);
  ExtentAllocator rebuilt(1024 * kPage);
  for (const Extent extent : held) REQUIRE(rebuilt.adopt(extent));
  CHECK(usedOf(rebuilt) == usedOf(lost));
  CHECK(rebuilt.largestFree() == lost.largestFree());
  for (const Extent extent : held) rebuilt.free(extent);
  checkUntouched(rebuilt);
}

}  // namespace
}  // namespace fluxon::master
