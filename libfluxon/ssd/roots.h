// The folders and shard files of a node's SSD tier. Page: fluxon-ssd(5).
//
// Each (large_file_path, limit) gives a root, <path>/<cluster>_cluster_kv_ssd_storage/<node>/. A disk is one scheduling domain, so of
// the roots on one device the first stays. The limit of a root is divided into shard files shard-000, shard-001, ..., which are
// emptied and reserved in full at start: nothing of an earlier process is read.
//
// Invariants
//   1. Whoever does I/O on a shard file does it through the descriptor on which it holds the exclusive flock. The kernel's
//      requests hold that descriptor too, so the lock is free only after the last I/O of a killed process.
//   2. Not a byte, nor the length, of any shard file of a root is touched before all shard files found there are locked.
// Blocking; at start, on no loop's thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/mapped_file.h"

namespace fluxon::ssd {

constexpr uint64_t kLeastLimitBytes = 512;  // for parseSize of a limit

struct RootOption {
  std::string path;     // large_file_path: made if its parent is there
  uint64_t limitBytes;  // large_limit_size: of records, their header blocks included
};

// More shards: one that is blocked by a slow reader holds up less, files stay of a handy size. Fewer: larger values find a place.
// So kMostShards, unless they would be smaller than kLeastShardBytes; one at least, and whole blocks.
constexpr uint32_t kMostShards = 8;
constexpr uint64_t kLeastShardBytes = uint64_t{256} << 20;
struct Division {
  uint32_t shards;
  uint64_t shardBytes;  // whole blocks; less than two: no value fits
};
Division divide(uint64_t limitBytes, uint32_t blockBytes);

struct Shard {
  std::string path;
  shm::Descriptor fd;  // locked; ends with this process's I/O
  uint64_t bytes;
};

struct Root {
  std::string path;
  uint64_t device;      // st_dev
  uint32_t blockBytes;  // what addresses, offsets and lengths of I/O are multiples of
  bool direct;          // false: the file system takes no O_DIRECT, I/O goes through the page cache
  std::vector<Shard> shards;
  shm::Reserved reserved;

  uint64_t capacityBytes() const;
};

struct SameDevice {
  std::string path;   // the large_file_path that is not used
  std::string first;  // the one on the same device that is
};

struct Roots {
  std::vector<Root> roots;
  std::vector<SameDevice> leftOut;
};

std::string rootPath(const std::string& largeFilePath, const std::string& cluster, const std::string& node);

// Makes the roots and their shard files. invalidArgument: a name or a limit; unavailable: another process, or I/O that it has left
// behind, holds a shard (ask again); noSpace: what the disk has is said, and the space that was reserved is given back;
// denied, system: a folder or file cannot be made.
Result<Roots> openRoots(const std::vector<RootOption>& options, const std::string& cluster, const std::string& node);

// The path of a shard file that does not lead to it any more, or empty.
std::string missingShard(const Root&);
// Gives the space of all shard files back. No I/O is under way.
void emptyShards(const Root&);

// Does a process, or the I/O of one that has ended, still hold a shard file of this root? True also when that cannot be told.
bool anyShardHeld(const std::string& rootPath);

}  // namespace fluxon::ssd
