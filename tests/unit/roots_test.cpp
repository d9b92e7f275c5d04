// Roots and shard files of the SSD tier, in a folder of TMPDIR and, for a second device, one of /dev/shm.
#include "ssd/roots.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/size.h"
#include "ssd/record.h"

namespace fluxon::ssd {
namespace {

namespace fs = std::filesystem;

struct Folder {
  explicit Folder(const std::string& parent = fs::temp_directory_path()) : path(parent + "/fluxon-roots-XXXXXX") {
    REQUIRE(::mkdtemp(path.data()));
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  std::string operator/(const char* name) const { return path + "/" + name; }
  std::string path;
};

struct stat statOf(const std::string& path) {
  struct stat info;
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info;
}

unsigned modeOf(const std::string& path) { return statOf(path).st_mode & 07777; }

Roots opened(const std::vector<RootOption>& options) {
  Result<Roots> roots = openRoots(options, "c", "n");
  INFO((roots.ok() ? "" : roots.error().message()));
  REQUIRE(roots);
  return std::move(roots).value();
}

Error refused(const std::vector<RootOption>& options, const std::string& cluster = "c", const std::string& node = "n") {
  const Result<Roots> roots = openRoots(options, cluster, node);
  REQUIRE_FALSE(roots);
  return roots.error();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("limits: sizes of 512 bytes and more, cut to whole bytes") {
  const auto limit = [](const char* text) { return parseSize(text, kLeastLimitBytes); };
  CHECK(limit("512").value() == 512);
  CHECK(limit("512.9B").value() == 512);
  CHECK(limit("1.5GB").value() == 1610612736);
  CHECK(limit("4GB").value() == 4 * kGiB);
  CHECK(limit("8589934592").value() == 8 * kGiB);
  for (const char* text : {"511", "511.9B", "0", "-1", "1x", "99999t", "", "0.4k"}) {
    const Result<uint64_t> refusal = limit(text);
    REQUIRE_FALSE(refusal);
    CHECK(refusal.error().code == Code::invalidArgument);
    CHECK_FALSE(contains(refusal.error().message(), "\n"));
  }
}

TEST_CASE("division: eight shards, fewer when they would be small, whole blocks within the limit") {
  const auto is = [](uint64_t limit, uint32_t block, uint32_t shards, uint64_t bytes) {
    const Division division = divide(limit, block);
    CHECK(division.shards == shards);
    CHECK(division.shardBytes == bytes);
  };
  is(4 * kGiB, 512, 8, kGiB / 2);
  is(8 * kTiB, 4096, 8, kTiB);
  is(kGiB, 512, 4, kGiB / 4);
  is(3 * kGiB / 2, 4096, 6, kGiB / 4);
  is(kGiB / 2 - 1, 512, 1, kGiB / 2 - 512);
  is(kGiB + 4097, 4096, 4, kGiB / 4);
  is(1023, 512, 1, 512);
  is(512, 4096, 1, 0);
}

TEST_CASE("roots: folders are for this user alone, shard files are whole, reserved and locked") {
  const Folder folder;
  const std::string path = folder / "large0";
  const Roots roots = opened({{path, kMiB + 100}});
  REQUIRE(roots.roots.size() == 1);
  const Root& root = roots.roots[0];
  CHECK(root.path == path + "/c_cluster_kv_ssd_storage/n");
  CHECK(modeOf(path) == 0700);
  CHECK(modeOf(path + "/c_cluster_kv_ssd_storage") == 0700);
  CHECK(modeOf(root.path) == 0700);
  CHECK(validBlockBytes(root.blockBytes));
  REQUIRE(root.shards.size() == 1);
  const Shard& shard = root.shards[0];
  CHECK(shard.path == root.path + "/shard-000");
  CHECK(modeOf(shard.path) == 0600);
  CHECK(shard.bytes == (kMiB + 100) / root.blockBytes * root.blockBytes);
  CHECK(static_cast<uint64_t>(statOf(shard.path).st_size) == shard.bytes);
  CHECK(static_cast<uint64_t>(statOf(shard.path).st_blocks) * 512 >= shard.bytes);
  CHECK(root.capacityBytes() == shard.bytes);
  CHECK(((::fcntl(shard.fd.get(), F_GETFL) & O_DIRECT) != 0) == root.direct);
  CHECK((::fcntl(shard.fd.get(), F_GETFL) & O_NONBLOCK) == 0);
  CHECK(anyShardHeld(root.path));
}

TEST_CASE("roots: a block can be written and read at any block of a shard") {
  const Folder folder;
  const Roots roots = opened({{folder / "a", kMiB}});
  const Root& root = roots.roots[0];
  char* const block = static_cast<char*>(std::aligned_alloc(root.blockBytes, root.blockBytes));
  std::fill_n(block, root.blockBytes, 'x');
  const auto at = static_cast<off_t>(root.shards[0].bytes - root.blockBytes);
  CHECK(::pwrite(root.shards[0].fd.get(), block, root.blockBytes, at) == static_cast<ssize_t>(root.blockBytes));
  CHECK(::pread(root.shards[0].fd.get(), block, root.blockBytes, at) == static_cast<ssize_t>(root.blockBytes));
  CHECK(block[root.blockBytes - 1] == 'x');
  std::free(block);
}

TEST_CASE("roots: of two paths on one device the first stays and the other is reported") {
  const Folder folder, memory("/dev/shm");
  const Roots roots =
      opened({{folder / "a", kMiB}, {folder / "b", kMiB}, {memory / "c", kMiB}, {folder / "a", kMiB}, {memory / "d", kMiB}});
  if (statOf(folder.path).st_dev == statOf(memory.path).st_dev) {
    MESSAGE("SKIPPED: (machine) TMPDIR and /dev/shm are one device");
    return;
  }
  REQUIRE(roots.roots.size() == 2);
  CHECK(roots.roots[0].path == rootPath(folder / "a", "c", "n"));
  CHECK(roots.roots[1].path == rootPath(memory / "c", "c", "n"));
  REQUIRE(roots.leftOut.size() == 3);
  CHECK(roots.leftOut[0].path == folder / "b");
  CHECK(roots.leftOut[0].first == folder / "a");
  CHECK(roots.leftOut[1].path == folder / "a");
  CHECK(roots.leftOut[2].path == memory / "d");
  CHECK(roots.leftOut[2].first == memory / "c");
}

TEST_CASE("roots: nothing of an earlier life is left, and shards beyond the limit are removed") {
  const Folder folder;
  const std::string root = rootPath(folder / "a", "c", "n");
  opened({{folder / "a", kGiB}});
  CHECK(fs::exists(root + "/shard-003"));
  std::ofstream(root + "/shard-000", std::ios::in) << "older bytes";
  std::ofstream(root + "/shard-xyz") << "not ours";
  const Roots roots = opened({{folder / "a", kMiB}});
  CHECK(roots.roots[0].shards.size() == 1);
  CHECK_FALSE(fs::exists(root + "/shard-001"));
  CHECK_FALSE(fs::exists(root + "/shard-003"));
  CHECK(fs::exists(root + "/shard-xyz"));
  std::string first(11, 'x');
  std::ifstream(root + "/shard-000").read(first.data(), 11);
  CHECK(first == std::string(11, '\0'));
}

TEST_CASE("roots: no shard is touched while any is held, by a process or by I/O that it has left behind") {
  const Folder folder;
  const std::string root = rootPath(folder / "a", "c", "n");
  int left;
  {
    const Roots roots = opened({{folder / "a", kGiB}});
    left = ::dup(roots.roots[0].shards[3].fd.get());  // what a request in the kernel holds
  }
  std::ofstream(root + "/shard-000", std::ios::in) << "older bytes";
  const Error error = refused({{folder / "a", kMiB}});
  CHECK(error.code == Code::unavailable);
  CHECK(contains(error.detail, root + "/shard-003 is in use"));
  CHECK(anyShardHeld(root));
  CHECK(statOf(root + "/shard-000").st_size == kGiB / 4);
  std::string first(11, ' ');
  std::ifstream(root + "/shard-000").read(first.data(), 11);
  CHECK(first == "older bytes");
  ::close(left);
  CHECK_FALSE(anyShardHeld(root));
  opened({{folder / "a", kMiB}});
}

TEST_CASE("roots: a root that cannot be looked at may be held, one that is not there is not") {
  const Folder folder;
  opened({{folder / "a", kMiB}});
  const std::string root = rootPath(folder / "a", "c", "n");
  CHECK_FALSE(anyShardHeld(root));
  CHECK_FALSE(anyShardHeld(folder / "none"));
  CHECK(anyShardHeld(root + "/shard-000"));
  // No descriptor is left; and one is.
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  for (const rlim_t left : {0, 1}) {
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next) + left;
    ::setrlimit(RLIMIT_NOFILE, &few);
    const bool held = anyShardHeld(root);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(held == (left == 0));
  }
}

TEST_CASE("roots: too little space is said, and what was reserved is given back") {
  const Folder folder;
  const Error error = refused({{folder / "a", kLargestSize / 2}});
  CHECK(error.code == Code::noSpace);
  CHECK(contains(error.detail, "32768 TiB in 8 shards do not fit: "));
  CHECK(contains(error.detail, " free"));
  CHECK(statOf(rootPath(folder / "a", "c", "n") + "/shard-000").st_blocks == 0);
}

TEST_CASE("roots: what fits shard by shard and not as a whole is refused before any of it is reserved") {
  const Folder folder;
  struct statvfs space = {};
  REQUIRE(::statvfs(std::string(folder / "").c_str(), &space) == 0);
  const Error error = refused({{folder / "a", uint64_t{space.f_bavail} * space.f_frsize / 2 * 3}});
  CHECK(error.code == Code::noSpace);
  CHECK(contains(error.detail, rootPath(folder / "a", "c", "n") + " needs "));  // and no shard of it
}

TEST_CASE("roots: one that does not fit leaves no space taken by the others") {
  const Folder folder, memory("/dev/shm");
  if (statOf(folder.path).st_dev == statOf(memory.path).st_dev) {
    MESSAGE("SKIPPED: (machine) TMPDIR and /dev/shm are one device");
    return;
  }
  CHECK(refused({{folder / "a", kMiB}, {memory / "b", kLargestSize / 2}}).code == Code::noSpace);
  CHECK(statOf(rootPath(folder / "a", "c", "n") + "/shard-000").st_blocks == 0);
}

TEST_CASE("roots: I/O is direct where the file system has it") {
  const Folder folder;
  const shm::Descriptor fd(::open((folder / "probe").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600));
  const std::unique_ptr<char, decltype(&std::free)> page(static_cast<char*>(std::aligned_alloc(kMostBlockBytes, kMostBlockBytes)),
                                                         &std::free);
  const bool works = fd && ::pwrite(fd.get(), page.get(), kMostBlockBytes, 0) == static_cast<ssize_t>(kMostBlockBytes);
  if (!works) MESSAGE("no direct I/O in TMPDIR");
  CHECK(opened({{folder / "a", kMiB}}).roots[0].direct == works);
}

TEST_CASE("roots: bad limits, names and folders are refused") {
  const Folder folder;
  CHECK(contains(refused({{folder / "a", 511}}).detail, "below the minimum of 512 B"));
  const uint64_t least = recordBytes(1, opened({{folder / "a", kMiB}}).roots[0].blockBytes);
  for (const uint64_t limit : {uint64_t{512}, least / 2 + 1, least - 1}) {
    CHECK(contains(refused({{folder / "a", limit}}).detail, " has no room for a value: " + formatSize(least) + " are the minimum"));
  }
  CHECK(opened({{folder / "a", least}}).roots[0].capacityBytes() == least);
  CHECK(refused({{folder / "a", kMiB}}, "../c").code == Code::invalidArgument);
  CHECK(refused({{folder / "a", kMiB}}, "c", "").code == Code::invalidArgument);
  CHECK(contains(refused({{folder / "no/such", kMiB}}).detail, "mkdir " + folder.path + "/no/such"));
  std::ofstream(folder / "file");
  CHECK_FALSE(refused({{folder / "file", kMiB}}).detail.empty());
}

TEST_CASE("roots: links are not followed below the large file path") {
  const Folder folder;
  fs::create_directories(folder / "elsewhere");
  fs::create_directories(folder / "a/c_cluster_kv_ssd_storage");
  fs::create_directory_symlink(folder / "elsewhere", folder / "a/c_cluster_kv_ssd_storage/n");
  CHECK(refused({{folder / "a", kMiB}}).code == Code::denied);
  fs::remove(folder / "a/c_cluster_kv_ssd_storage/n");
  fs::create_directory(folder / "a/c_cluster_kv_ssd_storage/n");
  fs::create_symlink(folder / "elsewhere/file", folder / "a/c_cluster_kv_ssd_storage/n/shard-000");
  refused({{folder / "a", kMiB}});
  CHECK_FALSE(fs::exists(folder / "elsewhere/file"));
}

}  // namespace fluxon::ssd
