// Files of a node in a folder of /dev/shm: what becomes of those of the last life.
#include "node_files.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/hash.h"
#include "base/size.h"

namespace fluxon::owner {
namespace {

namespace fs = std::filesystem;

// A soft limit of this process while it lives.
struct Limit {
  Limit(__rlimit_resource_t kind, uint64_t most) : resource(kind) {
    REQUIRE(::getrlimit(resource, &before) == 0);
    rlimit now = before;
    now.rlim_cur = most;
    REQUIRE(::setrlimit(resource, &now) == 0);
  }
  ~Limit() { ::setrlimit(resource, &before); }
  Limit(const Limit&) = delete;
  __rlimit_resource_t resource;
  rlimit before{};
};

uint64_t mappedBytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// A node whose last life has left one value.
struct Node {
  Node() : root("/dev/shm/fluxon-node-XXXXXX") {
    REQUIRE(::mkdtemp(root.data()));
    Result<shm::Paths> found = shm::Paths::of(root, "c");
    REQUIRE(found);
    paths = std::move(found).value();
    config.segmentBytes = 32 * kMiB;
    config.maxKeys = 1000;
    const std::unique_ptr<NodeFiles> files = started();
    const std::optional<uint32_t> slot = files->directory().grant("key", keyHash("key"), 0, 5, 1, OperationId());
    REQUIRE(slot);
    files->directory().submit(*slot);
    files->directory().commit(*slot, PutId(7));
  }
  ~Node() { fs::remove_all(root); }
  Node(const Node&) = delete;

  Result<std::unique_ptr<NodeFiles>> start() { return NodeFiles::create(paths, "n", config, -1, Incarnation(++lives)); }
  std::unique_ptr<NodeFiles> started() {
    Result<std::unique_ptr<NodeFiles>> files = start();
    INFO((files ? "" : files.error().message()));
    REQUIRE(files);
    return std::move(files).value();
  }
  std::string file(const char* name) const { return paths.file("n", name); }
  // A start with the first configuration finds it.
  bool hasValue() {
    config.segmentBytes = 32 * kMiB;
    const std::unique_ptr<NodeFiles> files = started();
    return files->adopted() && files->directory().committed("key", keyHash("key"));
  }
  Error refused() {
    const Result<std::unique_ptr<NodeFiles>> files = start();
    REQUIRE_FALSE(files);
    return files.error();
  }

  std::string root;
  shm::Paths paths;
  Config::Owner config;
  uint64_t lives = 0;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("node files: a process that may not map as much as the last life's files have keeps them and says so") {
  Node node;
  {
    const Limit limit(RLIMIT_AS, mappedBytes() + 16 * kMiB);
    const Error error = node.refused();
    CHECK(error.code == Code::system);
    CHECK_MESSAGE(has(error.detail, "map " + node.file("segment") + ": Cannot allocate memory (RLIMIT_AS is "), error.detail);
    CHECK_MESSAGE(has(error.detail, "(the files of the last life are kept)"), error.detail);
  }
  CHECK(node.hasValue());
}

TEST_CASE("node files: a process without a descriptor left keeps the last life's files, wherever it lacks one") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) the sanitizers look at memory through a pipe, and take want of descriptors for bad memory");
  return;
#endif
  Node node;
  const int next = ::open("/", O_PATH);
  ::close(next);
  int refusals = 0;
  for (int more = 0; more < 6; ++more) {
    CAPTURE(more);
    {
      const Limit limit(RLIMIT_NOFILE, static_cast<uint64_t>(next + more));
      Result<std::unique_ptr<NodeFiles>> files = node.start();
      if (files) {
        CHECK((*files)->adopted());
      } else {
        ++refusals;
        CHECK(files.error().code == Code::system);
        CHECK_MESSAGE(has(files.error().detail, "Too many open files (RLIMIT_NOFILE is "), files.error().detail);
      }
    }
    CHECK(node.hasValue());
  }
  CHECK(refusals >= 2);
}

TEST_CASE("node files: another segment_size that the process or the file system cannot have leaves the last life's files") {
  Node node;
  SUBCASE("RLIMIT_FSIZE") {
    node.config.segmentBytes = 64 * kMiB;
    const Limit limit(RLIMIT_FSIZE, 48 * kMiB);
    const Error error = node.refused();
    CHECK(error.code == Code::system);
    CHECK_MESSAGE(has(error.detail, node.file("segment") + ": File too large (RLIMIT_FSIZE is 50331648 bytes"), error.detail);
  }
  SUBCASE("RLIMIT_AS") {
    node.config.segmentBytes = 96 * kMiB;
    const Limit limit(RLIMIT_AS, mappedBytes() + 64 * kMiB);
    const Error error = node.refused();
    CHECK(error.code == Code::system);
    CHECK_MESSAGE(has(error.detail, " of segment, directory and keys: Cannot allocate memory (RLIMIT_AS is "), error.detail);
  }
  SUBCASE("the file system") {
    node.config.segmentBytes = uint64_t{1} << 50;
    const Error error = node.refused();
    CHECK((error.code == Code::noSpace || error.code == Code::system));
  }
  CHECK(node.hasValue());
}

TEST_CASE("node files: what is no file of a last life, or is damaged, is replaced") {
  Node node;
  SUBCASE("a segment that is a link") {
    const std::string precious = node.root + "/precious";
    std::ofstream(precious) << "treasure";
    fs::remove(node.file("segment"));
    fs::create_symlink(precious, node.file("segment"));
    CHECK_FALSE(node.started()->adopted());
    std::string text;
    std::ifstream(precious) >> text;
    CHECK(text == "treasure");
  }
  SUBCASE("no keys") {
    fs::remove(node.file("keys"));
    CHECK_FALSE(node.started()->adopted());
  }
  SUBCASE("a directory that is no directory") {
    std::ofstream(node.file("directory"), std::ios::trunc) << "nonsense";
    CHECK_FALSE(node.started()->adopted());
  }
}

TEST_CASE("node files: a start that is refused without a last life leaves nothing behind") {
  Node node;
  fs::remove_all(node.paths.nodeDir("n"));
  const Limit limit(RLIMIT_FSIZE, 16 * kMiB);
  CHECK_FALSE(has(node.refused().detail, "last life"));
  CHECK_FALSE(fs::exists(node.paths.nodeDir("n")));
}

}  // namespace fluxon::owner
