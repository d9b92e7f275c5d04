#include "node_files.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/cgroup.h"
#include "base/check.h"
#include "base/log.h"
#include "base/size.h"
#include "shm/node_size.h"
#include "shm/time_namespace.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace fluxon::owner {
namespace {

// Pages of a tmpfs are charged to the control group of the process that reserves them, and a group that outgrows its limit is killed.
// `going`: bytes of files that are removed before; the group gets them back if they were charged to it.
Error checkMemory(const std::string& folder, uint64_t bytes, uint64_t going) {
  struct statfs system;
  if (::statfs(folder.c_str(), &system) != 0) return systemError("statfs " + folder, errno);
  const std::optional<MemoryLimit> limit = memoryLimit();
  if (system.f_type != TMPFS_MAGIC || !limit || bytes <= limit->roomBytes() + std::min(going, limit->usedBytes)) return {};
  return {Code::noSpace, "segment, directory and keys need " + formatSize(bytes) + " of memory, and " + limit->text() +
                             " (accepted: a smaller owner.segment_size, or a larger limit)"};
}

// Checks the limits of the process itself.
Error checkProcess(const std::string& largest, uint64_t largestBytes, uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < largestBytes)
    return systemError("reserve " + formatSize(largestBytes) + " for " + largest, EFBIG);
  void* const room = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return systemError("map " + formatSize(bytes) + " of segment, directory and keys", errno);
  ::munmap(room, bytes);
  return {};
}

// Checks how many clients find room for their file.
Error checkClients(const std::string& folder, uint64_t maxClients) {
  struct statfs system;
  if (::statfs(folder.c_str(), &system) != 0) return systemError("statfs " + folder, errno);
  const uint64_t freeBytes = system.f_bavail * static_cast<uint64_t>(system.f_bsize);
  const bool counted = system.f_files > 0;
  uint64_t room = freeBytes / shm::kBytesPerClient;
  if (counted) room = std::min<uint64_t>(room, system.f_ffree);
  if (room >= maxClients) return {};
  const std::string found = folder + ": a client needs " + formatSize(shm::kBytesPerClient) + " and an inode, " + formatSize(freeBytes) +
                            (counted ? " and " + std::to_string(system.f_ffree) + " inodes" : "") + " are left";
  if (room == 0) return {Code::noSpace, found};
  log::warn(found + ": there is room for " + std::to_string(room) + " of owner.max_clients " + std::to_string(maxClients));
  return {};
}

}  // namespace

Result<std::unique_ptr<NodeFiles>> NodeFiles::create(const shm::Paths& paths, const std::string& node, const Config::Owner& config,
                                                     int group, Incarnation incarnation) {
  std::unique_ptr<NodeFiles> files(new NodeFiles(paths, node, group));
  if (Error error = shm::makeDirectories(paths, paths.nodeDir(node), group); !error.ok()) return error;
  Result<shm::LockFile> lock = shm::LockFile::acquire(files->file("lock"), "node " + node);
  if (!lock) return lock.error();
  files->lock_ = std::move(lock).value();
  files->shape_ = shm::DirectoryWriter::shapeFor(config.maxKeys, alignUp(config.segmentBytes, kLargeStep));
  if (Error error = files->takeOver(config, incarnation); !error.ok()) {
    if (files->whose_ == Whose::lastLifes && files->bytesOnDisk() > 0) error.detail += " (the files of the last life are kept)";
    return error;
  }
  files->segmentGuard_ = shm::FaultGuard::vital(files->segmentMap_, files->file("segment"));
  files->directoryGuard_ = shm::FaultGuard::vital(files->directoryMap_, files->file("directory"));
  files->keysGuard_ = shm::FaultGuard::vital(files->keysMap_, files->file("keys"));
  files->header().pid = static_cast<uint64_t>(::getpid());
  files->life_ = incarnation;
  files->noteClock();
  files->header().life.store(incarnation.value, std::memory_order_seq_cst);
  return files;
}

// Adopts the files of the last life, or makes new ones. Asks whatever can refuse the new ones before it removes the old ones.
Error NodeFiles::takeOver(const Config::Owner& config, Incarnation incarnation) {
  if (Error error = stopLastLife(); !error.ok()) return error;
  const Error why = adoptFiles();
  if (why.ok()) {
    whose_ = Whose::adopted;
    ::unlink(file("socket").c_str());
    log::info("goes on with the values of the last life");
    return {};
  }
  // A call of the kernel that failed says nothing of the files: this process lacks something, and the next one may have it.
  if (why.code != Code::miss && why.code != Code::badConfig && why.code != Code::corrupt) return why;
  for (shm::MappedFile* map : {&segmentMap_, &directoryMap_, &keysMap_}) *map = shm::MappedFile();
  if (Error refused = mayReplace(config); !refused.ok()) {
    if (why.code == Code::badConfig) refused.detail += "; " + why.detail;
    return refused;
  }
  if (why.code != Code::miss) log::warn("starts empty: " + (why.code == Code::badConfig ? why.detail : why.message()));
  shm::unlinkNodeFiles(paths_, node_);
  whose_ = Whose::fresh;
  // Checks again: the memory of the old files comes back only when nobody maps them.
  if (Error failed = checkMemory(paths_.nodeDir(node_), shm::bytesPerNode(config.segmentBytes, config.maxKeys), 0); !failed.ok())
    return failed;
  if (Error failed = makeFiles(incarnation); !failed.ok()) return failed;
  return checkClients(paths_.nodeDir(node_), config.maxClients);
}

uint64_t NodeFiles::bytesOnDisk() const {
  uint64_t bytes = 0;
  for (const char* name : {"segment", "directory", "keys"}) {
    struct stat info;
    if (::lstat(file(name).c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

// The files of a last life go only for new ones that can be made, not for a segment that has no room even without them.
Error NodeFiles::mayReplace(const Config::Owner& config) const {
  const std::string folder = paths_.nodeDir(node_);
  const uint64_t needed = shm::bytesPerNode(config.segmentBytes, config.maxKeys), going = bytesOnDisk();
  if (Error error = checkProcess(file("segment"), shm::kSegmentDataOffset + shape_.segmentBytes, needed); !error.ok()) return error;
  if (Error error = checkMemory(folder, needed, going); !error.ok()) return error;
  struct statvfs fs;
  if (going == 0 || ::statvfs(folder.c_str(), &fs) != 0) return {};
  const uint64_t free = uint64_t{fs.f_bavail} * fs.f_bsize;
  if (free + going >= needed + shm::kBytesPerClient) return {};
  return {Code::noSpace, folder + " needs " + formatSize(needed) + " and " + formatSize(shm::kBytesPerClient) + " for a client, " +
                             formatSize(free) + " free and " + formatSize(going) + " in files of the last life"};
}

// Takes over the files of the last life. miss: there are none; badConfig: they are whole, but the configuration asks for others;
// corrupt: they are not whole, or no regular files; else they may be whole, and this process cannot open or map them.
Error NodeFiles::adoptFiles() {
  if (!there("directory")) return {Code::miss, ""};
  const auto open = [&](const char* name, const char(&magic)[9], uint64_t bytes, shm::MappedFile& map) -> Error {
    if (!there(name)) return {Code::corrupt, file(name) + " is not there"};
    Result<shm::MappedFile> opened = shm::MappedFile::open(file(name), shm::Access::readWrite);
    if (!opened) return opened.error();
    if (opened->bytes() < sizeof(shm::FileHeader)) return {Code::corrupt, file(name) + " is too short"};
    const auto& header = *reinterpret_cast<const shm::FileHeader*>(opened->data());
    if (const char* why = shm::refuse(header, magic, opened->bytes())) return {Code::corrupt, file(name) + ": " + why};
    if (opened->bytes() != bytes && &map == &segmentMap_) {
      return {Code::badConfig, "owner.segment_size was changed from " + formatSize(opened->bytes() - shm::kSegmentDataOffset) + " to " +
                                   formatSize(shape_.segmentBytes)};
    }
    if (opened->bytes() != bytes) return {Code::badConfig, "owner.max_keys was changed"};
    map = std::move(opened).value();
    return {};
  };
  const uint64_t segmentBytes = shm::kSegmentDataOffset + shape_.segmentBytes;
  if (Error error = open("segment", shm::kSegmentMagic, segmentBytes, segmentMap_); !error.ok()) return error;
  if (Error error = open("directory", shm::kDirectoryMagic, shm::directoryFileBytes(shape_.buckets, shape_.overflowSlots), directoryMap_);
      !error.ok())
    return error;
  if (Error error = open("keys", shm::kKeysMagic, shm::keysFileBytes(shape_.keysBytes), keysMap_); !error.ok()) return error;
  auto* header = reinterpret_cast<shm::DirectoryHeader*>(directoryMap_.data());
  const auto made = [](const shm::MappedFile& map) { return reinterpret_cast<const shm::FileHeader*>(map.data())->incarnation; };
  const uint64_t tags = sizeof(shm::DirectoryHeader), slots = tags + uint64_t{shape_.buckets} * 64;
  const bool fits = made(segmentMap_) == made(directoryMap_) && made(keysMap_) == made(directoryMap_) &&
                    header->buckets == shape_.buckets && header->overflowSlots == shape_.overflowSlots && header->tagsOffset == tags &&
                    header->slotsOffset == slots && header->segmentBytes == shape_.segmentBytes && header->keysBytes == shape_.keysBytes &&
                    segmentHeader().dataBytes == shape_.segmentBytes && paths_.cluster == header->cluster && node_ == header->node;
  if (!fits) return {Code::corrupt, file("directory") + " does not fit its segment, its keys or the configuration"};
  memory_ = {header, reinterpret_cast<shm::Word*>(directoryMap_.data() + tags),
             reinterpret_cast<shm::DirectorySlot*>(directoryMap_.data() + slots), keysMap_.data() + sizeof(shm::KeysHeader)};
  Result<std::unique_ptr<shm::DirectoryWriter>> writer = shm::DirectoryWriter::adopt(memory_, shape_);
  if (!writer) return writer.error();
  directory_ = std::move(writer).value();
  header->controlAsleep.store(1, std::memory_order_relaxed);
  return {};
}

// True if the name may be a file of a last life. A link, a folder or a socket is none; what stat() cannot tell may be one.
bool NodeFiles::there(const char* name) const {
  struct stat info;
  if (::lstat(file(name).c_str(), &info) != 0) return errno != ENOENT && errno != ENOTDIR;
  return S_ISREG(info.st_mode);
}

// Ends the lease in the old directory, so that nobody serves from it.
Error NodeFiles::stopLastLife() {
  if (!there("directory")) return {};
  Result<shm::MappedFile> old = shm::MappedFile::open(file("directory"), shm::Access::readWrite);
  if (!old) return old.error().code == Code::corrupt ? Error{} : old.error();
  auto* header = reinterpret_cast<shm::DirectoryHeader*>(old->data());
  if (old->bytes() < sizeof(shm::DirectoryHeader) || shm::refuse(header->file, shm::kDirectoryMagic, old->bytes())) return {};
  shm::DirectoryWriter::endServing(*header);
  lastLife_ = Incarnation(header->contentIncarnation.load());
  clusterId_ = header->clusterId.load();
  highestTerm_ = header->highestTerm.load();
  highestMaster_ = header->highestMaster.load();
  return {};
}

Error NodeFiles::makeFiles(Incarnation incarnation) {
  const int mode = group_ >= 0 ? 0640 : 0600;
  const uint64_t segmentBytes = shape_.segmentBytes;
  const auto make = [&](const char* name, uint64_t bytes, shm::MappedFile& map) -> Error {
    Result<shm::Descriptor> fd = shm::createFile(file(name), bytes, mode, group_);
    if (!fd) return fd.error();
    Result<shm::MappedFile> mapped = shm::MappedFile::map(fd->get(), shm::Access::readWrite, file(name));
    if (!mapped) return mapped.error();
    map = std::move(mapped).value();
    return {};
  };
  if (Error error = make("segment", shm::kSegmentDataOffset + segmentBytes, segmentMap_); !error.ok()) return error;
  if (Error error = make("directory", shm::directoryFileBytes(shape_.buckets, shape_.overflowSlots), directoryMap_); !error.ok())
    return error;
  if (Error error = make("keys", shm::keysFileBytes(shape_.keysBytes), keysMap_); !error.ok()) return error;
  ::madvise(directoryMap_.data(), directoryMap_.bytes(), MADV_POPULATE_WRITE);  // a hint: without it first touches cost more

  auto& header = segmentHeader();
  std::memcpy(header.file.magic, shm::kSegmentMagic, 8);
  header.file.version = shm::kFormatVersion;
  header.file.headerBytes = static_cast<uint32_t>(shm::kSegmentDataOffset);
  header.file.fileBytes = segmentMap_.bytes();
  header.file.incarnation = incarnation.value;
  header.dataBytes = segmentBytes;
  memory_ = shm::DirectoryWriter::layout(directoryMap_.data(), keysMap_.data(), shape_, incarnation, paths_.cluster, node_);
  memory_.header->controlAsleep.store(1, std::memory_order_relaxed);
  memory_.header->clusterId.store(clusterId_, std::memory_order_relaxed);
  memory_.header->highestTerm.store(highestTerm_, std::memory_order_relaxed);
  memory_.header->highestMaster.store(highestMaster_, std::memory_order_relaxed);
  directory_ = std::make_unique<shm::DirectoryWriter>(memory_, shape_);
  return {};
}

Error NodeFiles::complete() {
  if (Error error = lockName_.add(file("lock")); !error.ok()) return error;
  for (const char* name : {"segment", "directory", "keys"}) {
    if (Error error = valueNames_.add(file(name)); !error.ok()) return error;
  }
  return socketName_.add(file("socket"));
}

NodeFiles::Loss NodeFiles::look() const {
  if (Error error = lockName_.look(); !error.ok()) return {error, Loss::What::lock};
  if (Error error = valueNames_.look(); !error.ok()) return {error, Loss::What::values};
  if (Error error = socketName_.look(); !error.ok()) return {error, Loss::What::socket};
  return {};
}

// Another owner may have taken over the directory: then the directory and its lease belong to that one.
void NodeFiles::disown() {
  atEnd_ = AtEnd::disown;
  if (header().life.load() != life_.value) return;
  shm::DirectoryWriter::endServing(header());
}

NodeFiles::~NodeFiles() {
  if (!lock_.acquired()) return;  // the files are another's
  if (atEnd_ == AtEnd::disown) {
    disown();  // once more: an answer of the master may have come since
    return;
  }
  if (whose_ == Whose::lastLifes && bytesOnDisk() > 0) return;  // they are the last life's still
  if (directory_) shm::DirectoryWriter::endServing(header());
  ::unlink(file("socket").c_str());
  const bool worth = directory_ && (directory_->count(shm::SlotState::committed) > 0 || directory_->ssd());
  if (worth && atEnd_ == AtEnd::keep) return;
  shm::unlinkNodeFiles(paths_, node_);
  ::unlink(file("lock").c_str());
  ::rmdir(paths_.nodeDir(node_).c_str());
}

shm::DirectoryView NodeFiles::view() const {
  Result<shm::DirectoryView> view = shm::DirectoryView::over(directoryMap_.data(), directoryMap_.bytes(), keysMap_.data(), keysMap_.bytes(),
                                                             segmentMap_.data(), segmentMap_.bytes());
  FLUXON_CHECK(view.ok(), "our own files do not hold together");
  return view.value();
}

void NodeFiles::noteClock() { header().bootTimeOffsetNs.store(shm::bootTimeOffsetNs(), std::memory_order_relaxed); }

uint64_t NodeFiles::populateStep(uint64_t at) {
  const uint64_t step = std::min(segmentBytes() - at, 16 * kMiB);
  // EINVAL on kernels without it: pages are then touched by their first writer.
  if (step == 0 || ::madvise(segment() + at, step, MADV_POPULATE_WRITE) != 0) return segmentBytes();
  segmentHeader().populatedBytes.store(at + step, std::memory_order_relaxed);
  return at + step;
}

}  // namespace fluxon::owner
