// The free runs by length, the grain pages by gap, and the allocator over both. A page's life:
//
//   free run --takePages, takePagesAt--> extent ----------givePages--> free run
//            --the same, then open-----> grain page --give, givePages--> free run
//
// Nobody owns a free page. Whoever was given an extent or a range of grains owns its bytes until free().
#include "extent_allocator.h"

#include <set>
#include <string>
#include <utility>

#include "base/check.h"

namespace fluxon::master {
namespace {

using namespace extent_maps;

constexpr uint64_t kGrainsPerPage = kLargeStep / kSmallStep;
constexpr uint64_t kBinnedPages = 16384;  // shorter free runs (below 64 MiB) have a bin per length
static_assert(kGrainsPerPage == 64, "a page's grains are the bits of one word");

std::string told(const char* what, Extent extent) {
  return std::string("extent allocator: ") + what + ": offset " + std::to_string(extent.offset) + " length " +
         std::to_string(extent.length);
}

struct Run {
  uint64_t page;
  uint64_t pages;
};

// The free runs by length.
class FreeRuns {
 public:
  void insert(Run run) {
    if (run.pages >= kBinnedPages) {
      long_.emplace(run.pages, run.page);
      return;
    }
    const uint32_t id = pool_.add({run.page, kNil, kNil});
    if (pool_.link(id, run.pages)) lengths_.set(run.pages);
  }

  void erase(Run run) {
    if (run.pages >= kBinnedPages) {
      long_.erase({run.pages, run.page});
      return;
    }
    const uint32_t id = pool_.find(run.page);
    if (pool_.unlink(id, run.pages)) lengths_.clear(run.pages);
    pool_.remove(id);
  }

  // The run keeps its first page.
  void resize(Run run, uint64_t pages) {
    if (run.pages < kBinnedPages && pages < kBinnedPages) {
      const uint32_t id = pool_.find(run.page);
      if (pool_.unlink(id, run.pages)) lengths_.clear(run.pages);
      if (pool_.link(id, pages)) lengths_.set(pages);
    } else if (run.pages >= kBinnedPages && pages >= kBinnedPages) {
      auto node = long_.extract({run.pages, run.page});
      node.value().first = pages;
      long_.insert(std::move(node));
    } else {
      erase(run);
      insert({run.page, pages});
    }
  }

  // The shortest run of at least this many pages.
  std::optional<Run> bestFit(uint64_t pages) const {
    if (pages < kBinnedPages) {
      const uint64_t length = lengths_.next(pages);
      if (length != kNoBit) return Run{pool_[pool_.head(length)].page, length};
    }
    const auto found = long_.lower_bound({pages, 0});
    if (found == long_.end()) return std::nullopt;
    return Run{found->second, found->first};
  }

  uint64_t longest() const {
    if (!long_.empty()) return long_.rbegin()->first;
    const uint64_t length = lengths_.prev(kBinnedPages - 1);
    return length == kNoBit ? 0 : length;
  }

 private:
  struct Node {
    uint64_t page;
    uint32_t prev, next;
  };
  Pool<Node> pool_{kBinnedPages};
  BitTree lengths_{kBinnedPages};                 // bins that are not empty
  std::set<std::pair<uint64_t, uint64_t>> long_;  // (pages, page)
};

// The length of the longest row of ones.
uint64_t longestRow(uint64_t word) {
  uint64_t row = 0;
  for (; word != 0; ++row) word &= word >> 1;
  return row;
}

// The bits at which a row of at least count ones begins; count is 1 to 63.
uint64_t rowStarts(uint64_t word, uint64_t count) {
  for (uint64_t have = 1; have < count;) {
    const uint64_t shift = have < count - have ? have : count - have;
    word &= word >> shift;
    have += shift;
  }
  return word;
}

// The pages that are cut into grains, by their longest gap.
class GrainPages {
 public:
  struct Range {
    uint64_t grain;  // within the page
    uint64_t grains;
    uint64_t mask() const { return lowBits(grains) << grain; }
  };

  uint64_t longestGap() const { return gaps_ == 0 ? 0 : highest(gaps_); }

  // The offset in bytes of a newly taken range, if any page has such a gap.
  std::optional<uint64_t> take(uint64_t grains) {
    const uint64_t fitting = gaps_ & ~lowBits(grains);
    if (fitting == 0) return std::nullopt;
    const uint32_t id = pool_.head(lowest(fitting));
    const Range range{lowest(rowStarts(~pool_[id].used, grains)), grains};
    mark(id, range);
    return pool_[id].page * kLargeStep + range.grain * kSmallStep;
  }

  // Makes a grain page of a page, with this one range taken.
  void open(uint64_t page, Range range) {
    const uint32_t id = pool_.add({page, 0, 0, 0, kNil, kNil});
    mark(id, range);
  }

  // False if any of the range is taken.
  bool takeAt(uint64_t page, Range range) {
    const uint32_t id = pool_.find(page);
    if ((pool_[id].used & range.mask()) != 0) return false;
    mark(id, range);
    return true;
  }

  // Whether exactly this range was taken as one.
  bool holds(uint64_t page, Range range) const {
    const Node& node = pool_[pool_.find(page)];
    const uint64_t mask = range.mask();
    const uint64_t end = range.grain + range.grains;
    const bool endsThere = end == kGrainsPerPage || (node.used & bitOf(end)) == 0 || (node.starts & bitOf(end)) != 0;
    return (node.used & mask) == mask && (node.starts & mask) == bitOf(range.grain) && endsThere;
  }

  // True if that was the last range: the page is then a grain page no longer.
  bool give(uint64_t page, Range range) {
    const uint32_t id = pool_.find(page);
    Node& node = pool_[id];
    node.used &= ~range.mask();
    node.starts &= ~bitOf(range.grain);
    const bool empty = node.used == 0;
    rebin(id, empty ? 0 : longestRow(~node.used));
    if (empty) pool_.remove(id);
    return empty;
  }

  template <typename Visit>
  void forEach(uint64_t page, Visit visit) const {
    const Node& node = pool_[pool_.find(page)];
    for (uint64_t rest = node.starts; rest != 0; rest &= rest - 1) {
      const uint64_t grain = lowest(rest);
      const uint64_t after = ~lowBits(grain + 1);
      const uint64_t stops = (node.starts | ~node.used) & after;
      visit(Range{grain, (stops == 0 ? kGrainsPerPage : lowest(stops)) - grain});
    }
  }

 private:
  struct Node {
    uint64_t page;
    uint64_t used;    // bit per grain
    uint64_t starts;  // bit per grain at which a range begins
    uint64_t gap;     // longest row of unused grains, and the bin; 0 is in no bin
    uint32_t prev, next;
  };

  void mark(uint32_t id, Range range) {
    Node& node = pool_[id];
    node.used |= range.mask();
    node.starts |= bitOf(range.grain);
    rebin(id, longestRow(~node.used));
  }

  void rebin(uint32_t id, uint64_t gap) {
    const uint64_t old = std::exchange(pool_[id].gap, gap);
    if (old == gap) return;
    if (old != 0 && pool_.unlink(id, old)) gaps_ &= ~bitOf(old);
    if (gap != 0 && pool_.link(id, gap)) gaps_ |= bitOf(gap);
  }

  Pool<Node> pool_{kGrainsPerPage};
  uint64_t gaps_ = 0;  // bins that are not empty
};

}  // namespace

// A run begins at every bit of starts; isFree and isGrains give its kind, a run with neither is an extent. One more start behind the last
// page ends the last run.
struct ExtentAllocator::State {
  explicit State(uint64_t pageCount) : pages(pageCount), starts(pageCount + 1), isFree(pageCount + 1), isGrains(pageCount + 1) {
    starts.set(pages);
    if (pages != 0) addFree({0, pages});
  }

  uint64_t runEnd(uint64_t page) const { return starts.next(page + 1); }

  void addFree(Run run) {
    starts.set(run.page);
    isFree.set(run.page);
    freeRuns.insert(run);
  }

  // Takes the last pages of a free run; the rest keeps its place in the page maps.
  uint64_t takeTail(Run run, uint64_t count) {
    if (run.pages == count) {
      freeRuns.erase(run);
      isFree.clear(run.page);
      return run.page;
    }
    freeRuns.resize(run, run.pages - count);
    const uint64_t page = run.page + run.pages - count;
    starts.set(page);
    return page;
  }

  uint64_t takeHead(Run run, uint64_t count) {
    freeRuns.erase(run);
    isFree.clear(run.page);
    if (run.pages != count) addFree({run.page + count, run.pages - count});
    return run.page;
  }

  // Single pages and longer extents gather at opposite ends of a hole, so that its middle stays whole: worth two points of payload where
  // single pages hold a third of the bytes and victims are random. Putting more lengths at the head costs a point where victims go by age.
  std::optional<uint64_t> takePages(uint64_t count) {
    const auto run = freeRuns.bestFit(count);
    if (!run) return std::nullopt;
    return count == 1 ? takeHead(*run, count) : takeTail(*run, count);
  }

  // False if any of the wanted pages is not free.
  bool takePagesAt(Run wanted) {
    const uint64_t page = starts.prev(wanted.page);
    const uint64_t end = runEnd(page);
    const uint64_t wantedEnd = wanted.page + wanted.pages;
    if (!isFree.test(page) || wantedEnd > end) return false;
    if (wantedEnd < end) {
      takeTail({page, end - page}, end - wantedEnd);
      addFree({wantedEnd, end - wantedEnd});
    }
    takeTail({page, wantedEnd - page}, wanted.pages);
    return true;
  }

  void givePages(Run run) {
    const uint64_t end = run.page + run.pages;
    const uint64_t before = run.page == 0 ? kNoBit : starts.prev(run.page - 1);
    const bool joinsBefore = before != kNoBit && isFree.test(before);
    const uint64_t newEnd = isFree.test(end) ? runEnd(end) : end;
    if (newEnd != end) {
      freeRuns.erase({end, newEnd - end});
      isFree.clear(end);
      starts.clear(end);
    }
    if (joinsBefore) {
      starts.clear(run.page);
      freeRuns.resize({before, run.page - before}, newEnd - before);
    } else {
      addFree({run.page, newEnd - run.page});
    }
  }

  // An extent that allocate() could have returned.
  bool isWellFormed(Extent extent) const {
    const uint64_t end = pages * kLargeStep;
    if (extent.length == 0 || extent.length > end || extent.offset > end - extent.length) return false;
    if (extent.length >= kLargeStep) return extent.length % kLargeStep == 0 && extent.offset % kLargeStep == 0;
    return extent.length % kSmallStep == 0 && extent.offset % kSmallStep == 0 && extent.offset % kLargeStep + extent.length <= kLargeStep;
  }

  void count(Extent extent) {
    usedBytes += extent.length;
    ++extents;
  }

  uint64_t pages;
  BitTree starts;
  Bits isFree;
  Bits isGrains;
  FreeRuns freeRuns;
  GrainPages grainPages;
  uint64_t usedBytes = 0;
  size_t extents = 0;
};

namespace {

Run runOf(Extent extent) { return {extent.offset / kLargeStep, extent.length / kLargeStep}; }

GrainPages::Range grainsOf(Extent extent) { return {extent.offset % kLargeStep / kSmallStep, extent.length / kSmallStep}; }

}  // namespace

ExtentAllocator::ExtentAllocator(uint64_t capacityBytes) : state_(std::make_unique<State>(capacityBytes / kLargeStep)) {}
ExtentAllocator::~ExtentAllocator() = default;
ExtentAllocator::ExtentAllocator(ExtentAllocator&&) noexcept = default;
ExtentAllocator& ExtentAllocator::operator=(ExtentAllocator&&) noexcept = default;

std::optional<Extent> ExtentAllocator::allocate(uint64_t payloadBytes) {
  State& state = *state_;
  if (payloadBytes > capacity()) return std::nullopt;
  Extent extent{0, extentBytes(payloadBytes)};
  if (extent.length >= kLargeStep) {
    const auto page = state.takePages(extent.length / kLargeStep);
    if (!page) return std::nullopt;
    extent.offset = *page * kLargeStep;
  } else if (const auto offset = state.grainPages.take(extent.length / kSmallStep)) {
    extent.offset = *offset;
  } else {
    const auto page = state.takePages(1);
    if (!page) return std::nullopt;
    extent.offset = *page * kLargeStep;
    state.isGrains.set(*page);
    state.grainPages.open(*page, grainsOf(extent));
  }
  state.count(extent);
  return extent;
}

void ExtentAllocator::free(Extent extent) {
  State& state = *state_;
  FLUXON_CHECK(state.isWellFormed(extent), told("free of an impossible extent", extent).c_str());
  const uint64_t page = extent.offset / kLargeStep;
  FLUXON_CHECK(state.starts.test(page) && !state.isFree.test(page), told("free of an unused extent", extent).c_str());
  const bool isSmall = extent.length < kLargeStep;
  FLUXON_CHECK(state.isGrains.test(page) == isSmall, told("free of an extent of another grain", extent).c_str());
  if (isSmall) {
    FLUXON_CHECK(state.grainPages.holds(page, grainsOf(extent)), told("free of an unused extent", extent).c_str());
    if (state.grainPages.give(page, grainsOf(extent))) {
      state.isGrains.clear(page);
      state.givePages({page, 1});
    }
  } else {
    const Run run = runOf(extent);
    FLUXON_CHECK(state.runEnd(page) == page + run.pages, told("free of an extent of another length", extent).c_str());
    state.givePages(run);
  }
  state.usedBytes -= extent.length;
  --state.extents;
}

bool ExtentAllocator::adopt(Extent extent) {
  State& state = *state_;
  if (!state.isWellFormed(extent)) return false;
  const uint64_t page = extent.offset / kLargeStep;
  if (extent.length >= kLargeStep) {
    if (!state.takePagesAt(runOf(extent))) return false;
  } else if (state.isGrains.test(page)) {
    if (!state.grainPages.takeAt(page, grainsOf(extent))) return false;
  } else {
    if (!state.takePagesAt({page, 1})) return false;
    state.isGrains.set(page);
    state.grainPages.open(page, grainsOf(extent));
  }
  state.count(extent);
  return true;
}

uint64_t ExtentAllocator::capacity() const { return state_->pages * kLargeStep; }
uint64_t ExtentAllocator::freeBytes() const { return capacity() - state_->usedBytes; }
uint64_t ExtentAllocator::usedBytes() const { return state_->usedBytes; }
size_t ExtentAllocator::extentCount() const { return state_->extents; }

uint64_t ExtentAllocator::largestFree() const {
  const uint64_t pages = state_->freeRuns.longest();
  return pages != 0 ? pages * kLargeStep : state_->grainPages.longestGap() * kSmallStep;
}

void ExtentAllocator::forEachUsed(const std::function<void(Extent)>& visit) const {
  const State& state = *state_;
  for (uint64_t page = 0, end = 0; page < state.pages; page = end) {
    end = state.runEnd(page);
    if (state.isFree.test(page)) continue;
    const uint64_t offset = page * kLargeStep;
    if (!state.isGrains.test(page)) {
      visit({offset, (end - page) * kLargeStep});
      continue;
    }
    state.grainPages.forEach(page, [&](GrainPages::Range range) { visit({offset + range.grain * kSmallStep, range.grains * kSmallStep}); });
  }
}

}  // namespace fluxon::master
