#include "ssd/roots.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/ids.h"
#include "base/size.h"
#include "shm/paths.h"
#include "ssd/record.h"

namespace fluxon::ssd {
namespace {

std::string shardName(uint32_t number) {
  std::string digits = std::to_string(number);
  return "shard-" + std::string(3 - std::min<size_t>(3, digits.size()), '0') + digits;
}

// Paths of the shard files that are there, sorted; `error`: there may be others.
std::vector<std::string> shardPaths(const std::string& root, std::error_code& error) {
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.size() == 9 && name.starts_with("shard-") && name.find_first_not_of("0123456789", 6) == std::string::npos) {
      paths.push_back(root + "/" + name);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Makes all folders of a root.
Error makeRoot(const std::string& largeFilePath, const std::string& root) {
  if (::mkdir(largeFilePath.c_str(), 0700) != 0 && errno != EEXIST) return systemError("mkdir " + largeFilePath, errno);
  for (const std::string& path : {std::filesystem::path(root).parent_path().string(), root}) {
    if (Error error = shm::makeDirectory(path, -1); !error.ok()) return error;
  }
  return {};
}

Result<Shard> lockShard(const std::string& path) {
  const auto held = [&] { return path + " is in use by another process, or by I/O that one has left behind"; };
  Result<shm::Descriptor> fd = shm::openLocked(path, O_RDWR | O_DIRECT, held);
  if (!fd && fd.error().code == Code::system) fd = shm::openLocked(path, O_RDWR, held);  // O_DIRECT may be refused here already
  if (!fd) return fd.error();
  if (::fchmod(fd->get(), 0600) != 0) return systemError("chmod " + path, errno);
  return Shard{path, std::move(fd).value(), 0};
}

// The block length with which direct I/O on an empty file works, 0: with none. Tried, not only asked for: some file systems say
// nothing, and some accept the flag and refuse the I/O. Address, offset and length are multiples of just the block.
Result<uint32_t> directBlock(const Shard& shard) {
  if ((::fcntl(shard.fd.get(), F_GETFL) & O_DIRECT) == 0) return 0u;
  uint32_t least = kLeastBlockBytes;
  struct ::statx info = {};
  if (::statx(shard.fd.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN)) {
    if (info.stx_dio_offset_align == 0) return 0u;
    least = std::max({least, info.stx_dio_mem_align, info.stx_dio_offset_align});
  }
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::aligned_alloc(2 * kMostBlockBytes, 4 * kMostBlockBytes)),
                                                           &std::free);
  if (!memory) return Error{Code::system, "no memory"};
  std::memset(memory.get(), 0, 4 * kMostBlockBytes);
  for (uint32_t block = kLeastBlockBytes; block <= kMostBlockBytes; block *= 2) {
    if (block < least) continue;
    const ssize_t written = ::pwrite(shard.fd.get(), memory.get() + block, block, block);
    if (written == static_cast<ssize_t>(block)) return block;
    if (written < 0 && errno == ENOSPC) return Error{Code::noSpace, shard.path + ": the disk is full"};
    if (written < 0 && errno != EINVAL) return systemError("write " + shard.path, errno);
  }
  return 0u;
}

Error clear(const Shard& shard) { return ::ftruncate(shard.fd.get(), 0) == 0 ? Error{} : systemError("truncate " + shard.path, errno); }

// What a root may take of its file system: what is free there, and what its shard files have. Some file systems (btrfs) count bytes as
// free a while after a file has been cut, so it is asked for before. UINT64_MAX: it does not say.
uint64_t freeBytes(const std::string& root, const std::vector<Shard>& shards) {
  struct statvfs space = {};
  if (::statvfs(root.c_str(), &space) != 0) return UINT64_MAX;
  uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
  for (const Shard& shard : shards) {
    struct stat info = {};
    if (::fstat(shard.fd.get(), &info) == 0) free += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return free;
}

// Makes the shard files of a root: locks what is there, empties it, then makes as many and as long files as the limit says.
Error openShards(Root& root, uint64_t limitBytes) {
  std::error_code unread;
  std::vector<std::string> paths = shardPaths(root.path, unread);
  if (unread) return systemError("list " + root.path, unread.value());
  if (paths.empty()) paths.push_back(root.path + "/" + shardName(0));
  std::vector<Shard> found;
  for (const std::string& path : paths) {
    Result<Shard> shard = lockShard(path);
    if (!shard) return shard.error();
    found.push_back(std::move(shard).value());
  }
  const uint64_t free = freeBytes(root.path, found);
  for (const Shard& shard : found) {
    if (Error error = clear(shard); !error.ok()) return error;
  }
  const Result<uint32_t> block = directBlock(found.front());
  if (Error error = clear(found.front()); !error.ok()) return error;
  if (!block) return block.error();
  root.direct = block.value() != 0;
  root.blockBytes = root.direct ? block.value() : kLeastBlockBytes;
  const Division division = divide(limitBytes, root.blockBytes);
  if (const uint64_t least = recordBytes(1, root.blockBytes); division.shardBytes < least) {
    return {Code::invalidArgument, "large_limit_size " + formatSize(limitBytes) + " of " + root.path + " has no room for a value: " +
                                       formatSize(least) + " are the minimum, two blocks of its file system"};
  }
  for (uint32_t number = 0; number < division.shards; ++number) {
    const std::string path = root.path + "/" + shardName(number);
    const auto at = std::find_if(found.begin(), found.end(), [&](const Shard& shard) { return shard.path == path; });
    if (at != found.end()) {
      root.shards.push_back(std::move(*at));
      found.erase(at);
      continue;
    }
    Result<Shard> shard = lockShard(path);
    if (!shard) return shard.error();
    if (Error error = clear(shard.value()); !error.ok()) return error;
    root.shards.push_back(std::move(shard).value());
  }
  for (const Shard& shard : found) ::unlink(shard.path.c_str());
  // All of it before any of it: a disk is not filled for what does not fit.
  if (const uint64_t wanted = division.shards * division.shardBytes; free < wanted) {
    return {Code::noSpace, formatSize(limitBytes) + " in " + std::to_string(division.shards) + " shards do not fit: " + root.path +
                               " needs " + formatSize(wanted) + ", " + formatSize(free) + " free"};
  }
  for (Shard& shard : root.shards) {
    const int flags = ::fcntl(shard.fd.get(), F_GETFL);
    if (!root.direct && ::fcntl(shard.fd.get(), F_SETFL, flags & ~O_DIRECT) != 0) return systemError("fcntl " + shard.path, errno);
    shard.bytes = division.shardBytes;
    const Result<shm::Reserved> reserved = shm::reserveSpace(shard.fd.get(), shard.path, shard.bytes);
    if (reserved) {
      root.reserved = reserved.value();
      continue;
    }
    Error error = reserved.error();
    if (error.code == Code::noSpace) {
      error.detail = formatSize(limitBytes) + " in " + std::to_string(division.shards) + " shards do not fit: " + error.detail;
    }
    return error;
  }
  return {};
}

}  // namespace

Division divide(uint64_t limitBytes, uint32_t blockBytes) {
  const uint64_t shards = std::clamp<uint64_t>(limitBytes / kLeastShardBytes, 1, kMostShards);
  return {static_cast<uint32_t>(shards), limitBytes / shards / blockBytes * blockBytes};
}

uint64_t Root::capacityBytes() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards) sum += shard.bytes;
  return sum;
}

std::string rootPath(const std::string& largeFilePath, const std::string& cluster, const std::string& node) {
  return largeFilePath + "/" + cluster + "_cluster_kv_ssd_storage/" + node;
}

Result<Roots> openRoots(const std::vector<RootOption>& options, const std::string& cluster, const std::string& node) {
  for (const std::string& name : {cluster, node}) {
    if (!validName(name)) return Error{Code::invalidArgument, "name '" + name + "' (accepted: 1 to 32 of A-Z a-z 0-9 _ - ., no leading .)"};
  }
  Roots opened;
  std::vector<std::pair<std::string, uint64_t>> used;  // large_file_path and limit of each root
  for (const RootOption& option : options) {
    if (option.limitBytes < kLeastLimitBytes) {
      return Error{Code::invalidArgument, "large_limit_size " + formatSize(option.limitBytes) + " of " + option.path +
                                              " is below the minimum of " + formatSize(kLeastLimitBytes)};
    }
    const std::string path = rootPath(option.path, cluster, node);
    if (Error error = makeRoot(option.path, path); !error.ok()) return error;
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return systemError("stat " + path, errno);
    const auto same = std::find_if(opened.roots.begin(), opened.roots.end(), [&](const Root& root) { return root.device == info.st_dev; });
    if (same != opened.roots.end()) {
      opened.leftOut.push_back({option.path, used[static_cast<size_t>(same - opened.roots.begin())].first});
      continue;
    }
    opened.roots.push_back(Root{path, info.st_dev, 0, false, {}, {}});
    used.emplace_back(option.path, option.limitBytes);
  }
  for (size_t at = 0; at < opened.roots.size(); ++at) {
    Error error = openShards(opened.roots[at], used[at].second);
    if (error.ok()) continue;
    for (const Root& root : opened.roots) {
      for (const Shard& shard : root.shards) clear(shard);
    }
    return error;
  }
  return opened;
}

std::string missingShard(const Root& root) {
  for (const Shard& shard : root.shards) {
    struct stat here, open;
    if (::fstat(shard.fd.get(), &open) != 0) continue;
    const bool found = ::stat(shard.path.c_str(), &here) == 0;
    if (!found && errno != ENOENT && errno != ENOTDIR) continue;  // that it cannot be seen says nothing
    if (!found || here.st_dev != open.st_dev || here.st_ino != open.st_ino) return shard.path;
  }
  return {};
}

void emptyShards(const Root& root) {
  for (const Shard& shard : root.shards) (void)clear(shard);
}

bool anyShardHeld(const std::string& rootPath) {
  std::error_code error;
  const std::vector<std::string> paths = shardPaths(rootPath, error);
  if (error) return error != std::errc::no_such_file_or_directory;
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    const shm::Descriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    return fd ? ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 : errno != ENOENT;
  });
}

}  // namespace fluxon::ssd
