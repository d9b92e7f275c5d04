#include "shm_files.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "shm/directory_view.h"
#include "shm/segment_format.h"
#include "shm/time_namespace.h"
#include "ssd/roots.h"

namespace fluxon::ctl {
namespace {

bool readAt(const shm::Descriptor& file, uint64_t offset, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(file.get(), at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

// A file opened, its length, and the first `headerBytes` of it (less if it is shorter).
struct Opened {
  shm::Descriptor file;
  uint64_t bytes = 0;
};
Result<Opened> openWithHeader(const std::string& path, void* header, size_t headerBytes) {
  struct stat info;
  // Before it is opened: a pipe in its place would block.
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return Error{Code::corrupt, path + " is not a regular file"};
  Result<shm::Descriptor> file = shm::openFile(path, shm::Access::readOnly);
  if (!file) return file.error();
  if (::fstat(file->get(), &info) != 0) return systemError("stat " + path, errno);
  Opened opened{std::move(file).value(), static_cast<uint64_t>(std::max<off_t>(info.st_size, 0))};
  if (!readAt(opened.file, 0, header, std::min<uint64_t>(headerBytes, opened.bytes))) return Error{Code::corrupt, path + " cannot be read"};
  return opened;
}

}  // namespace

Result<std::vector<std::string>> nodesOf(const shm::Paths& paths) {
  if (::access(paths.clusterDir().c_str(), R_OK | X_OK) != 0 && errno == EACCES) return systemError("open " + paths.clusterDir(), errno);
  return paths.nodes();
}

std::string runningNodes(const shm::Paths& paths) {
  std::string names;
  for (const std::string& node : paths.nodes()) {
    if (shm::LockFile::held(paths.file(node, "lock"))) names += (names.empty() ? "" : ", ") + node;
  }
  return names;
}

std::string toString(shm::SlotState state) {
  switch (state) {
    case shm::SlotState::free: return "free";
    case shm::SlotState::granted: return "granted";
    case shm::SlotState::pending: return "pending";
    case shm::SlotState::committed: return "committed";
    case shm::SlotState::reclaiming: return "reclaiming";
    case shm::SlotState::retired: return "retired";
  }
  return "invalid";
}

Result<DirectoryFile> DirectoryFile::open(const shm::Paths& paths, const std::string& node) {
  if (::access(paths.file(node, "directory").c_str(), F_OK) != 0 && errno == ENOENT) {
    return Error{Code::unavailable, "node " + node + " has no directory in " + paths.nodeDir(node)};
  }
  // Zeroed copies of the headers alone: DirectoryView::over() checks them against the lengths of the files, and its pointers
  // beyond them are not used.
  auto directory = std::make_unique<shm::DirectoryHeader>();
  auto keys = std::make_unique<shm::KeysHeader>();
  auto segment = std::make_unique<shm::SegmentHeader>();
  Result<Opened> directoryFile = openWithHeader(paths.file(node, "directory"), directory.get(), sizeof *directory);
  if (!directoryFile) return directoryFile.error();
  Result<Opened> keysFile = openWithHeader(paths.file(node, "keys"), keys.get(), sizeof *keys);
  if (!keysFile) return keysFile.error();
  const Result<Opened> segmentFile = openWithHeader(paths.file(node, "segment"), segment.get(), sizeof *segment);
  if (!segmentFile) return segmentFile.error();
  const Result<shm::DirectoryView> view = shm::DirectoryView::over(directory.get(), directoryFile->bytes, keys.get(), keysFile->bytes,
                                                                   segment.get(), segmentFile.value().bytes);
  if (!view) return Error{view.error().code, "node " + node + ": " + view.error().detail};
  DirectoryFile result;
  result.directory_ = std::move(directoryFile->file);
  result.keys_ = std::move(keysFile->file);
  result.slotsOffset_ = directory->slotsOffset;
  result.keysBytes_ = directory->keysBytes;
  result.segmentBytes_ = view.value().segmentBytes;
  result.slotCount_ = view.value().slotCount;
  result.incarnation_ = Incarnation(directory->file.incarnation);
  result.leaseUntilNs_ = static_cast<int64_t>(directory->leaseUntilNs.load());
  result.bootTimeOffsetNs_ = directory->bootTimeOffsetNs.load();
  result.ssdLife_ = Incarnation(directory->ssdLife.load());
  result.serving_ = Incarnation(directory->servingIncarnation.load());
  result.life_ = Incarnation(directory->life.load());
  return result;
}

Time DirectoryFile::ownersNow() const { return bootTime() + Duration{bootTimeOffsetNs_ - shm::bootTimeOffsetNs()}; }

Error DirectoryFile::read(uint32_t first, std::vector<SlotCopy>& slots) const {
  slots.resize(std::min(kSlotsAtATime, slotCount_ - first));
  if (readAt(directory_, slotsOffset_ + uint64_t{first} * sizeof(SlotCopy), slots.data(), slots.size() * sizeof(SlotCopy))) return {};
  return {Code::corrupt, "directory: shorter than its table"};
}

std::optional<DirectoryFile::Entry> DirectoryFile::entry(uint32_t index) const {
  if (index >= slotCount_) return std::nullopt;
  const uint64_t at = slotsOffset_ + uint64_t{index} * sizeof(SlotCopy);
  for (int attempt = 0; attempt < 8; ++attempt) {
    Entry entry;
    uint64_t after = 0;
    if (!readAt(directory_, at, &entry.slot, sizeof entry.slot)) return std::nullopt;
    const uint64_t offset = shm::keyOffset(entry.slot.key), bytes = shm::keyBytes(entry.slot.key);
    const bool sane = bytes <= kMaxKeyBytes && offset <= keysBytes_ && bytes <= keysBytes_ - offset;
    entry.key.resize(sane ? bytes : 0);
    if (!readAt(keys_, sizeof(shm::KeysHeader) + offset * sane, entry.key.data(), entry.key.size())) return std::nullopt;
    if (!readAt(directory_, at, &after, sizeof after)) return std::nullopt;
    if (after != entry.slot.word) continue;  // the slot has changed under us
    if (!sane) return std::nullopt;
    return entry;
  }
  return std::nullopt;
}

std::vector<ClientId> clientsOf(const shm::Paths& paths, const std::string& node) {
  std::vector<ClientId> ids;
  DIR* dir = ::opendir(paths.nodeDir(node).c_str());
  if (!dir) return ids;
  while (const dirent* file = ::readdir(dir)) {
    const std::string name = file->d_name, start = "client-";
    if (!name.starts_with(start) || name.size() == start.size() || name.size() > start.size() + 19) continue;
    if (name.find_first_not_of("0123456789", start.size()) == std::string::npos) ids.emplace_back(std::stoull(name.substr(start.size())));
  }
  ::closedir(dir);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Result<std::optional<ClientCopy>> readClient(const shm::Paths& paths, const std::string& node, ClientId id, Mappers& mappers) {
  const std::string name = "client-" + std::to_string(id.value), path = paths.file(node, name);
  const auto corrupt = [&](const std::string& why) { return Error{Code::corrupt, name + " of node " + node + ": " + why}; };
  ClientCopy copy;
  copy.id = id;
  copy.file = std::make_unique<shm::ClientFile>();
  Result<Opened> opened = openWithHeader(path, copy.file.get(), offsetof(shm::ClientFile, payloads));
  if (!opened) {
    if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::optional<ClientCopy>();
    return opened.error();
  }
  const shm::ClientHeader& header = copy.file->header;
  // Its owner takes the lock before it writes the header: asking for the lock earlier could come between.
  if (opened->bytes == sizeof(shm::ClientFile) && header.file.magic[0] == 0) return std::optional<ClientCopy>();
  if (const char* why = shm::refuse(header.file, shm::kClientMagic, opened->bytes)) return corrupt(why);
  if (opened->bytes != sizeof(shm::ClientFile)) return corrupt("another size");
  if (header.clientId != id.value) return corrupt("it says that it is client " + std::to_string(header.clientId));
  copy.name.assign(header.name, ::strnlen(header.name, sizeof header.name));
  copy.incarnation = Incarnation(header.file.incarnation);
  copy.alive = shm::LockFile::held(path);
  const std::string lock = paths.file(node, "lock");
  if (copy.alive) copy.mappedBy = mappers.of(path, lock);
  copy.pid = copy.alive ? mappers.oneOf(path, lock, header.pid) : ProcessId{header.pid, ProcessId::Proof::past};
  return std::optional<ClientCopy>(std::move(copy));
}

Result<std::optional<SsddCopy>> readSsdd(const shm::Paths& paths, const std::string& node) {
  const std::string path = paths.file(node, "ssdd");
  const auto file = std::make_unique<ssd::SsddFile>();
  const Result<Opened> opened = openWithHeader(path, file.get(), offsetof(ssd::SsddFile, toSsdd));
  if (!opened) {
    if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::optional<SsddCopy>();
    return opened.error();
  }
  if (opened.value().bytes == sizeof *file && file->header.file.magic[0] == 0) return std::optional<SsddCopy>();
  const Result<DirectoryFile> directory = DirectoryFile::open(paths, node);
  // An ssdd has the clock of its owner, or does not attach.
  const Time now = directory ? directory.value().ownersNow() : bootTime();
  Result<SsddReport> report = reportOf(file->header, file->status, opened.value().bytes, now);
  if (!report) return Error{report.error().code, "ssdd of node " + node + ": " + report.error().detail};
  SsddCopy copy{std::move(report).value(), {}, std::nullopt, std::nullopt};
  for (const SsddReport::Device& device : copy.report.devices) {
    if (!device.path.starts_with("/") || ::access(device.path.c_str(), R_OK | X_OK) != 0) continue;
    copy.alive = copy.alive.value_or(false) || ssd::anyShardHeld(device.path);
  }
  copy.pid = copy.alive.value_or(true) ? Mappers().oneOf(path, paths.file(node, "lock"), copy.report.pid)
                                       : ProcessId{copy.report.pid, ProcessId::Proof::past};
  const shm::LockFile::Taken owner = shm::LockFile::taken(paths.file(node, "lock"));
  if (directory && owner != shm::LockFile::Taken::unseen)
    copy.attached = owner == shm::LockFile::Taken::yes && directory.value().ssdLife() == copy.report.life;
  return std::optional<SsddCopy>(std::move(copy));
}

}  // namespace fluxon::ctl
