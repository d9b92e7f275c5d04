#include "state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <sstream>
#include <utility>

#include "base/crc32c.h"
#include "base/read_file.h"
#include "base/size.h"
#include "shm/mapped_file.h"

namespace fluxon::master {
namespace {

std::string crcOf(const std::string& text) {
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08x", crc32c(text.data(), text.size()));
  return hex;
}

bool number(const std::string& text, uint64_t& to) {
  if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos) return false;
  to = std::stoull(text);
  return true;
}

// "node 00f3..."
bool memberLine(const std::string& value, std::string& node, uint64_t& life) {
  const size_t space = value.find(' ');
  node = value.substr(0, space);
  const std::string hex = space == std::string::npos ? "" : value.substr(space + 1);
  if (!validName(node) || hex.size() != 16 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  life = std::stoull(hex, nullptr, 16);
  return true;
}

}  // namespace

std::string formatState(const DurableState& state) {
  std::string text = "fluxon-state 1\ncluster " + state.cluster + "\ncluster-id " + state.clusterId + "\nterm " +
                     std::to_string(state.term.value) + "\nlease-ms " + std::to_string(state.leaseMs) + "\n";
  for (const auto& [node, life] : state.members) text += "member " + node + " " + toString(life) + "\n";
  return sealed(text);
}

std::string sealed(const std::string& lines) { return lines + "crc " + crcOf(lines) + "\n"; }

Result<DurableState> parseState(const std::string& text, const std::string& name) {
  const auto damaged = [&](const std::string& why) {
    return Error{Code::corrupt, name + ": " + why + " (restore the file, or remove it after all owners have been stopped)"};
  };
  const size_t last = text.rfind("crc ");
  if (last == std::string::npos || (last != 0 && text[last - 1] != '\n')) return damaged("no checksum line");
  if (text != sealed(text.substr(0, last))) return damaged("checksum does not match");
  std::istringstream lines(text.substr(0, last));
  DurableState state;
  bool hasTerm = false, hasLease = false;
  std::string line;
  uint64_t life = 0;
  if (!std::getline(lines, line) || line != "fluxon-state 1") return damaged("unknown format");
  while (std::getline(lines, line)) {
    const size_t space = line.find(' ');
    const std::string key = line.substr(0, space), value = space == std::string::npos ? "" : line.substr(space + 1);
    if (key == "cluster" && validName(value)) {
      state.cluster = value;
    } else if (key == "cluster-id" && !value.empty()) {
      state.clusterId = value;
    } else if (key == "term" && number(value, state.term.value) && state.term.value <= PutId::kMaxTerm) {
      hasTerm = true;
    } else if (key == "lease-ms" && number(value, state.leaseMs) && state.leaseMs <= kLongestLeaseMs) {
      hasLease = true;
    } else if (std::string node; key == "member" && memberLine(value, node, life)) {
      state.members[node] = Incarnation(life);
    } else {
      return damaged("line '" + line + "'");
    }
  }
  for (const auto& [name, given] : {std::pair{"cluster", !state.cluster.empty()}, std::pair{"cluster-id", !state.clusterId.empty()},
                                    std::pair{"term", hasTerm}, std::pair{"lease-ms", hasLease}}) {
    if (!given) return damaged(std::string("incomplete, no line '") + name + "'");
  }
  return state;
}

Result<DurableState> loadState(StateDisk& disk, const std::string& path, const std::string& cluster, const std::string& fresh) {
  const Result<std::string> text = disk.read(path);
  if (!text && text.error().code != Code::miss) return text.error();
  if (!text) {
    DurableState state;
    state.cluster = cluster;
    state.clusterId = fresh;
    return state;
  }
  Result<DurableState> state = parseState(text.value(), path);
  if (state && state->cluster != cluster) {
    return Error{Code::badConfig, path + " belongs to cluster '" + state->cluster + "', not '" + cluster + "'"};
  }
  return state;
}

Error storeState(StateDisk& disk, const std::string& path, const DurableState& state) {
  const std::string beside = path + ".new";
  if (Error error = disk.write(beside, formatState(state)); !error.ok()) return error;
  if (Error error = disk.sync(beside); !error.ok()) return error;
  if (Error error = disk.rename(beside, path); !error.ok()) return error;
  return disk.syncFolder(path);
}

namespace {

constexpr uint64_t kMostBytes = 64 * kMiB;

class KernelDisk final : public StateDisk {
 public:
  Result<std::string> read(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return errno == ENOENT ? Error{Code::miss, path} : systemError("stat " + path, errno);
    // Before it is opened: of a pipe nothing would come.
    if (!S_ISREG(info.st_mode)) return Error{Code::corrupt, path + " is not a regular file"};
    return readFile(path, kMostBytes, seconds(1));
  }
  Error write(const std::string& path, const std::string& bytes) override {
    // What an interrupted write, or somebody else, has left there is nobody's.
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return systemError("remove " + path, errno);
    file_ = shm::Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_) return systemError("open " + path, errno);
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written != static_cast<ssize_t>(bytes.size())) return systemError("write " + path, written < 0 ? errno : ENOSPC);
    return {};
  }
  Error sync(const std::string& path) override {
    const shm::Descriptor file = std::move(file_);
    return ::fsync(file.get()) == 0 ? Error{} : systemError("fsync " + path, errno);
  }
  Error rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Error{} : systemError("rename " + from, errno);
  }
  Error syncFolder(const std::string& path) override {
    const shm::Descriptor folder(::open(path.substr(0, path.rfind('/')).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return folder && ::fsync(folder.get()) == 0 ? Error{} : systemError("fsync the folder of " + path, errno);
  }

 private:
  shm::Descriptor file_;
};

}  // namespace

std::unique_ptr<StateDisk> kernelDisk() { return std::make_unique<KernelDisk>(); }

}  // namespace fluxon::master
