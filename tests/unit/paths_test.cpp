// shm: folders and locks on a real file system: what is made, what is used as it is, and what is refused.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "shm/paths.h"

namespace fluxon::shm {
namespace {

struct Folder {
  Folder() { REQUIRE(::mkdtemp(path)); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return std::string(path) + "/" + name; }
  char path[32] = "/tmp/fluxon-paths-XXXXXX";
};

struct Umask {
  explicit Umask(mode_t mask) : before(::umask(mask)) {}
  ~Umask() { ::umask(before); }
  mode_t before;
};

unsigned modeOf(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What another user, who may look into nothing of `path`'s folder, finds out of its lock.
LockFile::Taken asStranger(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setresuid(12345, 12345, 12345) != 0 ? 99 : static_cast<int>(LockFile::taken(path)));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WEXITSTATUS(status) != 99);
  return static_cast<LockFile::Taken>(WEXITSTATUS(status));
}

}  // namespace

TEST_CASE("folders: what is there keeps its mode, and one that everybody may replace is refused") {
  const Folder folder;
  for (const unsigned mode : {0700U, 0755U, 0775U, 01777U, 0500U}) {
    CAPTURE(mode);
    const std::string path = folder / std::to_string(mode);
    REQUIRE(::mkdir(path.c_str(), 0700) == 0);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    CHECK(makeDirectory(path, -1).ok());
    CHECK(modeOf(path) == mode);
  }
  const std::string open = folder / "open";
  REQUIRE(::mkdir(open.c_str(), 0700) == 0);
  REQUIRE(::chmod(open.c_str(), 0777) == 0);
  const Error error = makeDirectory(open, -1);
  CHECK(error.code == Code::denied);
  CHECK_MESSAGE(has(error.detail, open + " can be written by everybody"), error.detail);
  CHECK(modeOf(open) == 0777);
}

TEST_CASE("folders: a group is let into what is made, and never into what was there") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root has other groups to give a folder to");
    return;
  }
  const Folder folder;
  const std::string made = folder / "made", there = folder / "there", open = folder / "open";
  CHECK(makeDirectory(made, 12345).ok());
  CHECK(modeOf(made) == 0750);
  CHECK(makeDirectory(made, 12345).ok());
  REQUIRE(::mkdir(there.c_str(), 0700) == 0);
  const Error error = makeDirectory(there, 12345);
  CHECK(error.code == Code::denied);
  CHECK_MESSAGE(has(error.detail, there + " was there and does not let group 12345 of common.shm_group in (chgrp 12345 "), error.detail);
  CHECK(modeOf(there) == 0700);
  REQUIRE(::mkdir(open.c_str(), 0700) == 0);
  REQUIRE(::chmod(open.c_str(), 0755) == 0);
  CHECK(makeDirectory(open, 12345).ok());
  CHECK(modeOf(open) == 0755);
}

TEST_CASE("folders and locks are made with their modes whatever the umask") {
  const Folder folder;
  const Umask closed(0777);
  CHECK(makeDirectory(folder / "folder", -1).ok());
  CHECK(modeOf(folder / "folder") == 0700);
  CHECK(LockFile::acquire(folder / "lock", "it").ok());
  CHECK(modeOf(folder / "lock") == 0600);
}

TEST_CASE("locks: what is no regular file is in the way, and named") {
  const Folder folder;
  const std::string fifo = folder / "fifo", link = folder / "link", directory = folder / "directory";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  REQUIRE(::symlink("nowhere", link.c_str()) == 0);
  REQUIRE(::mkdir(directory.c_str(), 0700) == 0);
  const std::string user = " of user " + std::to_string(::geteuid()) + ", not a regular file";
  for (const auto& [path, kind] : {std::pair{fifo, "a fifo"}, {link, "a symbolic link"}, {directory, "a folder"}}) {
    const Result<LockFile> lock = LockFile::acquire(path, "it");
    REQUIRE_FALSE(lock.ok());
    CHECK(lock.error().code == Code::denied);
    CHECK_MESSAGE(has(lock.error().detail, path + " is in the way: " + kind + user), lock.error().detail);
  }
}

TEST_CASE("locks: one that may not be opened is not a free one; who has it the kernel may show") {
  const Folder folder;
  const std::string path = folder / "lock", kept = folder / "kept";
  CHECK(LockFile::taken(path) == LockFile::Taken::no);
  std::ofstream(path) << "1\n";
  CHECK(LockFile::taken(path) == LockFile::Taken::no);
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can be another user");
    return;
  }
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK(asStranger(path) == LockFile::Taken::unseen);  // the folder is closed
  REQUIRE(::chmod(folder.path, 0711) == 0);
  CHECK(asStranger(path) == LockFile::Taken::unseen);
  const Result<LockFile> lock = LockFile::acquire(path, "it");
  REQUIRE(lock.ok());
  CHECK(LockFile::taken(path) == LockFile::Taken::yes);
  if (LockFile::holder(path) > 0) CHECK(asStranger(path) == LockFile::Taken::yes);
  REQUIRE(::chmod(folder.path, 0700) == 0);
  CHECK(asStranger(path) == LockFile::Taken::unseen);
}

}  // namespace fluxon::shm
