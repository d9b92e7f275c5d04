// Hazards against reclaim, between processes: one owner that overwrites, scans, frees, poisons and reuses extents as fast as it
// can, and readers that get values and check them, killed with SIGKILL at random moments.
//
// A value is its put_id in every word. A freed extent is poisoned before it is reused. A reader that holds a hit must see its own
// put_id in every word as long as it holds it; anything else means that a held extent was freed. Built three times: as it is (must
// find nothing), with the reader's exchange weakened to a release store, and without the re-check (c) of directory_view.h (both must
// be caught). Exit: 0 nothing found, 1 a reader saw a foreign byte, 77 the machine cannot show it.
//   hazard_stress SECONDS [READERS]
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "shm/directory_view.h"
#include "shm/directory_writer.h"
#include "shm/hazard_scan.h"
#include "shm/segment_format.h"

using namespace fluxon;
using namespace fluxon::shm;

namespace {

constexpr uint32_t kKeys = 2;
constexpr uint64_t kWords = 32;  // of a value
constexpr uint64_t kValueBytes = kWords * 8;
constexpr uint64_t kPoison = 0xDDDDDDDDDDDDDDDDull;

void* sharedMemory(uint64_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FLUXON_CHECK(memory != MAP_FAILED, "mmap");
  return memory;
}

std::string keyName(uint32_t i) { return "key-" + std::to_string(i); }

// What readers report, one per reader.
struct alignas(64) Report {
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> sawPutId{0}, sawWord{0};
};

// Everything that owner and readers share.
struct World {
  DirectoryWriter::Shape shape;
  DirectoryWriter::Memory memory{};
  char* segment = nullptr;
  DirectoryView view;
  std::vector<ClientFile*> clients;
  Report* reports = nullptr;
  std::atomic<bool>* stop = nullptr;

  explicit World(unsigned readers) {
    const uint64_t segmentBytes = 64 * kValueBytes;
    shape = DirectoryWriter::shapeFor(16, segmentBytes);
    void* const directory = sharedMemory(directoryFileBytes(shape.buckets, shape.overflowSlots));
    void* const keys = sharedMemory(keysFileBytes(shape.keysBytes));
    char* const file = static_cast<char*>(sharedMemory(kSegmentDataOffset + segmentBytes));
    auto* const header = reinterpret_cast<SegmentHeader*>(file);
    std::memcpy(header->file.magic, kSegmentMagic, 8);
    header->file.version = kFormatVersion;
    header->file.headerBytes = kSegmentDataOffset;
    header->file.fileBytes = kSegmentDataOffset + segmentBytes;
    header->file.incarnation = 7;
    memory = DirectoryWriter::layout(directory, keys, shape, Incarnation(7), "stress", "n0");
    segment = file + kSegmentDataOffset;
    Result<DirectoryView> checked = DirectoryView::over(directory, memory.header->file.fileBytes, keys, keysFileBytes(shape.keysBytes),
                                                        file, kSegmentDataOffset + segmentBytes);
    FLUXON_CHECK(checked.ok(), "the view refuses the layout");
    view = checked.value();
    memory.header->leaseUntilNs = INT64_MAX;
    memory.header->servingIncarnation = 7;
    for (unsigned i = 0; i < readers; ++i) clients.push_back(static_cast<ClientFile*>(sharedMemory(sizeof(ClientFile))));
    reports = new (sharedMemory(sizeof(Report) * readers)) Report[readers];
    stop = new (sharedMemory(64)) std::atomic<bool>(false);
  }
};

volatile uint64_t* words(const char* data) { return reinterpret_cast<volatile uint64_t*>(const_cast<char*>(data)); }

[[noreturn]] void reader(World& world, unsigned number) {
  HazardTable hazards(world.clients[number]->hazards);
  Report& report = world.reports[number];
  std::mt19937_64 random(number * 7919 + static_cast<unsigned>(::getpid()));
  std::string names[kKeys];
  uint64_t hashes[kKeys];
  for (uint32_t i = 0; i < kKeys; ++i) names[i] = keyName(i), hashes[i] = keyHash(names[i]);
  while (!world.stop->load(std::memory_order_relaxed)) {
    const uint32_t key = static_cast<uint32_t>(random() % kKeys);
    Hit hit;
    if (probe(world.view, hazards, 0, names[key], hashes[key], hit) != Probe::hit) continue;
    for (int round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < kWords; ++i) {
        const uint64_t word = words(hit.data)[i];
        if (word == hit.putId.value) continue;
        report.sawPutId = hit.putId.value;
        report.sawWord = word;
        ++report.wrong;
        ::_exit(1);
      }
      if (round == 1 && random() % 4096 == 0) ::sched_yield();
    }
    report.hits.fetch_add(1, std::memory_order_relaxed);
    hazards.drop(hit.hazard);
  }
  ::_exit(0);
}

class Owner {
 public:
  explicit Owner(World& world) : world_(world), directory_(world.memory, world.shape) {
    for (uint64_t offset = 0; offset < 64 * kValueBytes; offset += kValueBytes) free_.push_back(offset);
  }

  void overwrite(uint32_t key) {
    const std::string name = keyName(key);
    const uint64_t hash = keyHash(name);
    if (const auto old = directory_.committed(name, hash)) retire(*old);
    if (++turns_ % 64 == 0) reclaim();
    while (free_.empty()) reclaim();
    const uint64_t offset = free_.front();
    free_.erase(free_.begin());
    const auto slot = directory_.grant(name, hash, offset, kValueBytes, 0, OperationId(1));
    FLUXON_CHECK(slot.has_value(), "no slot");
    fill(offset, ++putId_);
    directory_.submit(*slot);
    directory_.commit(*slot, PutId(putId_));
  }

  uint64_t overwrites() const { return putId_; }

 private:
  // Retires and looks at once, without a detour between exchange and look: what a reader's store that is still on its way would
  // be missed by. Readers use shard 0 and hold few slots, so the window of the slot's home is all there is to look at; what is held
  // waits for the full scan.
  void retire(uint32_t slot) {
    const uint64_t ref = directory_.ref(slot);
    const uint32_t home = HazardTable::homeOf(ref);
    directory_.retire(slot);
    bool held = false;
    for (const ClientFile* client : world_.clients) {
      for (uint32_t i = 0; i < HazardTable::kWindow; ++i) {
        held |= client->hazards[0].words[(home + i) % kHazardsPerShard].load(std::memory_order_seq_cst) == ref;
      }
    }
    if (held) {
      retired_.push_back(slot);
    } else {
      give(slot);
    }
  }

  void give(uint32_t slot) {
    const uint64_t offset = directory_.offset(slot);
    fill(offset, kPoison);
    directory_.release(slot);
    free_.push_back(offset);
  }

  void fill(uint64_t offset, uint64_t word) {
    for (uint64_t i = 0; i < kWords; ++i) words(world_.segment + offset)[i] = word;
  }

  void reclaim() {
    std::vector<uint64_t> refs;
    for (const uint32_t slot : retired_) refs.push_back(directory_.ref(slot));
    const std::vector<const ClientFile*> clients(world_.clients.begin(), world_.clients.end());
    const std::vector<bool> held = scanHazards(clients, refs);
    std::vector<uint32_t> left;
    for (size_t i = 0; i < retired_.size(); ++i) {
      if (held[i]) {
        left.push_back(retired_[i]);
        continue;
      }
      give(retired_[i]);
    }
    retired_ = std::move(left);
  }

  World& world_;
  DirectoryWriter directory_;
  std::vector<uint64_t> free_;
  std::vector<uint32_t> retired_;
  uint64_t putId_ = 0;
  uint64_t turns_ = 0;
};

int run(double seconds, unsigned readers) {
  World world(readers);
  Owner owner(world);
  for (uint32_t key = 0; key < kKeys; ++key) owner.overwrite(key);
  std::vector<pid_t> pids(readers);
  const auto start = [&](unsigned i) {
    pids[i] = ::fork();
    if (pids[i] == 0) reader(world, i);
  };
  for (unsigned i = 0; i < readers; ++i) start(i);

  std::mt19937_64 random(1);
  uint64_t kills = 0;
  const Time end = bootTime() + Duration{static_cast<int64_t>(seconds * 1e9)};
  Time nextKill = bootTime() + milliseconds(50);
  bool wrong = false;
  while (bootTime() < end && !wrong) {
    for (int i = 0; i < 200; ++i) owner.overwrite(static_cast<uint32_t>(random() % kKeys));
    for (unsigned i = 0; i < readers; ++i) wrong |= world.reports[i].wrong != 0;
    if (bootTime() < nextKill) continue;
    // A dead reader's hazards hold until its end is certain; then its file is as new.
    const unsigned victim = static_cast<unsigned>(random() % readers);
    ::kill(pids[victim], SIGKILL);
    ::waitpid(pids[victim], nullptr, 0);
    ++kills;
    std::memset(static_cast<void*>(world.clients[victim]), 0, sizeof(HazardShard) * kHazardShards + 4096);
    start(victim);
    nextKill = bootTime() + milliseconds(20 + static_cast<int64_t>(random() % 60));
  }
  *world.stop = true;
  uint64_t hits = 0;
  for (unsigned i = 0; i < readers; ++i) {
    ::waitpid(pids[i], nullptr, 0);
    hits += world.reports[i].hits;
    if (world.reports[i].wrong) {
      wrong = true;
      std::printf("reader %u held put_id %llu and read %llx\n", i, static_cast<unsigned long long>(world.reports[i].sawPutId),
                  static_cast<unsigned long long>(world.reports[i].sawWord));
    }
  }
  std::printf("%llu overwrites, %llu hits checked, %llu readers killed: %s\n", static_cast<unsigned long long>(owner.overwrites()),
              static_cast<unsigned long long>(hits), static_cast<unsigned long long>(kills),
              wrong ? "a held extent was freed" : "nothing wrong");
  return wrong ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  const unsigned readers = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 3;
  if (std::thread::hardware_concurrency() < 2) {
    std::printf("SKIPPED: (machine) one processor cannot run owner and reader at once\n");
    return 77;
  }
  return run(seconds, readers);
}
