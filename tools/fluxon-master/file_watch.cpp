#include "file_watch.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <utility>

namespace fluxon::master {

FileWatch::FileWatch(rpc::Daemon& daemon, Files files, std::function<void()> store)
    : daemon_(daemon), files_(std::move(files)), store_(std::move(store)) {}

FileWatch::Seen FileWatch::look() {
  Seen seen;
  seen.lost = files_.sharedMemory.look();
  if (!seen.lost.ok()) return seen;
  seen.stateless = ::access(files_.state.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
  if (files_.stateLock.named(files_.stateFolder + "/lock")) return seen;
  seen.stateless = true;
  std::error_code created;
  std::filesystem::create_directories(files_.stateFolder, created);
  if (created) {
    seen.unrepaired = {Code::system, "create " + files_.stateFolder + ": " + created.message()};
    return seen;
  }
  Result<shm::LockFile> lock = shm::LockFile::acquire(files_.stateFolder + "/lock", files_.what);
  if (!lock && lock.error().code == Code::unavailable) {
    seen.lost = lock.error();
  } else if (!lock) {
    seen.unrepaired = lock.error();
  } else {
    files_.stateLock = std::move(lock).value();
    seen.repaired = true;
  }
  return seen;
}

kj::Promise<Error> FileWatch::lost() {
  return daemon_.timer().afterDelay(1 * kj::SECONDS).then([this] {
    auto seen = std::make_shared<Seen>();
    return daemon_.workers().run([this, seen] { *seen = look(); }).then([this, seen]() -> kj::Promise<Error> {
      if (!seen->lost.ok()) return seen->lost;
      if (seen->repaired) log::error(files_.stateFolder + "/lock has been removed or replaced: the state is written anew");
      if (!seen->unrepaired.ok()) {
        const std::string line = said_.line(seen->unrepaired.message(), bootTime());
        if (!line.empty()) log::error(files_.stateFolder + "/lock has been removed: " + line);
      } else if (seen->stateless && !seen->repaired) {
        log::error(files_.state + " has been removed: it is written anew");
      }
      if (seen->stateless) store_();
      return lost();
    });
  });
}

}  // namespace fluxon::master
