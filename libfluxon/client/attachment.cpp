#include "client/attachment.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shm/node_socket.h"
#include "shm/segment_format.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace fluxon::client {
namespace {

constexpr uint64_t kGranule = 256 * 1024;  // unit of populating the writable mapping

Error ended(const std::string& node) { return {Code::unavailable, "node " + node + " ended while attaching"}; }

// One message each way. `descriptors` takes up to kAttachDescriptors; missing ones stay -1.
Error exchange(int socket, shm::AttachKind kind, const std::string& name, const std::string& node, Time deadline, int* descriptors) {
  std::fill(descriptors, descriptors + shm::kAttachDescriptors, -1);
  shm::AttachRequest request{};
  std::memcpy(request.magic, shm::kAttachMagic, 8);
  request.version = shm::kFormatVersion;
  request.kind = static_cast<uint32_t>(kind);
  std::memcpy(request.name, name.data(), std::min(name.size(), sizeof request.name - 1));
  if (::send(socket, &request, sizeof request, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request)) return ended(node);
  shm::AttachReply reply{};
  pollfd wait{socket, POLLIN, 0};
  for (;;) {
    const int64_t leftMs = (deadline - bootTime()).ms();
    if (leftMs <= 0) return {Code::timedOut, "node " + node + " did not answer the attach request"};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(leftMs + 1, 3'600'000)));
    if (ready < 0 && errno != EINTR) return systemError("poll", errno);
    if (ready > 0) break;
  }
  const ssize_t n = shm::receiveMessage(socket, &reply, sizeof reply, descriptors, shm::kAttachDescriptors);
  if (n <= 0) return ended(node);
  if (n != static_cast<ssize_t>(sizeof reply) || std::memcmp(reply.magic, shm::kAttachMagic, 8) != 0 ||
      reply.version != shm::kFormatVersion) {
    return {Code::protocol, "node " + node + " speaks another version"};
  }
  if (reply.code != 0) return {codeFromWire(reply.code), std::string(reply.detail, ::strnlen(reply.detail, sizeof reply.detail))};
  return {};
}

}  // namespace

Result<Attachment*> Attachment::attach(const shm::Paths& paths, const std::string& node, const std::string& name, Time deadline) {
  struct Destroy {
    void operator()(Attachment* attachment) const { delete attachment; }
  };
  std::unique_ptr<Attachment, Destroy> attachment(new Attachment);
  attachment->node_ = node;
  for (;;) {
    Result<shm::Descriptor> socket = shm::connectNode(paths, node);
    if (!socket && socket.error().code == Code::timedOut && bootTime() < deadline) {
      ::usleep(2000);
      continue;
    }
    if (!socket) return socket.error();
    attachment->socket_ = std::move(socket).value();
    break;
  }
  int descriptors[shm::kAttachDescriptors];
  const Error refused = exchange(attachment->socket_.get(), shm::AttachKind::attach, name, node, deadline, descriptors);
  const Error error = refused.ok() ? attachment->map(descriptors) : refused;
  for (int i = 0; i + 1 < shm::kAttachDescriptors; ++i) {
    if (descriptors[i] >= 0) ::close(descriptors[i]);  // the mappings stay, and with the first one its lock
  }
  if (!error.ok()) return error;
  return attachment.release();
}

Error Attachment::map(int* descriptors) {
  bell_ = shm::Descriptor(descriptors[4]);
  shm::MappedFile* const maps[] = {&fileMap_, &directoryMap_, &keysMap_, &segmentMap_};
  static constexpr const char* kNames[] = {"client file", "directory", "keys", "segment"};
  for (int i = 0; i < 4; ++i) {
    if (descriptors[i] < 0) return {Code::protocol, "node " + node_ + " sent too few descriptors"};
    Result<shm::MappedFile> map = shm::MappedFile::map(descriptors[i], i == 0 ? shm::Access::readWrite : shm::Access::readOnly, kNames[i]);
    if (!map) return map.error();
    *maps[i] = std::move(map).value();
  }
  if (!bell_) return {Code::protocol, "node " + node_ + " sent too few descriptors"};
  if (const char* why = shm::refuse(file().header.file, shm::kClientMagic, fileMap_.bytes()))
    return {Code::corrupt, std::string("client file: ") + why};
  if (fileMap_.bytes() != sizeof(shm::ClientFile)) return {Code::corrupt, "client file: another size"};
  Result<shm::DirectoryView> view = shm::DirectoryView::over(directoryMap_.data(), directoryMap_.bytes(), keysMap_.data(), keysMap_.bytes(),
                                                             segmentMap_.data(), segmentMap_.bytes());
  if (!view) return view.error();
  view_ = view.value();
  ::madvise(directoryMap_.data(), directoryMap_.bytes(), MADV_POPULATE_READ);  // a hint
  hazards_ = std::make_unique<shm::HazardTable>(file().hazards);
  ring_ = std::make_unique<CommandRing>(file(), *view_.header, bell_.get(), socket_.get());
  populated_ = std::vector<std::atomic<bool>>(view_.segmentBytes / kGranule + 1);
  return {};
}

Attachment::~Attachment() {
  if (fileMap_) file().header.detached.store(1, std::memory_order_release);
}

struct Attachment::Graveyard {
  const uint64_t generation = forkGeneration();
  std::mutex mutex;
  std::vector<Attachment*> retired;

  void sweep() {
    std::erase_if(retired, [](Attachment* attachment) {
      if (attachment->users_.load(std::memory_order_acquire) != 0 || attachment->hazards_->holders() != 0) return false;
      delete attachment;
      return true;
    });
  }
};

Attachment::Graveyard& Attachment::graveyard() {
  // Never destroyed: holders may outlive main(). A child of a fork has its own, empty: its parent's attachments are none of its
  // business, and its parent's lock may have been held at that moment.
  static std::atomic<Graveyard*> present{new Graveyard};
  Graveyard* yard = present.load(std::memory_order_acquire);
  if (yard->generation == forkGeneration()) return *yard;
  auto* const fresh = new Graveyard;
  if (present.compare_exchange_strong(yard, fresh)) return *fresh;
  delete fresh;
  return *yard;
}

void Attachment::drop(shm::HazardTable::Ref ref) {
  if (!retired_.load(std::memory_order_acquire)) return hazards_->drop(ref);
  Graveyard& yard = graveyard();
  const std::lock_guard lock(yard.mutex);
  hazards_->drop(ref);
  yard.sweep();
}

void Attachment::unuse() {
  if (!retired_.load(std::memory_order_acquire)) {
    users_.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  Graveyard& yard = graveyard();
  const std::lock_guard lock(yard.mutex);
  users_.fetch_sub(1, std::memory_order_acq_rel);
  yard.sweep();
}

void Attachment::retire() {
  Graveyard& yard = graveyard();
  const std::lock_guard lock(yard.mutex);
  retired_.store(true, std::memory_order_release);
  yard.retired.push_back(this);
  users_.fetch_sub(1, std::memory_order_acq_rel);
  yard.sweep();
}

void Attachment::sweep() {
  Graveyard& yard = graveyard();
  const std::lock_guard lock(yard.mutex);
  yard.sweep();
}

Result<char*> Attachment::writable(uint64_t offset, uint64_t bytes, Time deadline) {
  if (offset > view_.segmentBytes || bytes > view_.segmentBytes - offset) return Error{Code::corrupt, "a grant outside the segment"};
  char* base = writableBase_.load(std::memory_order_acquire);
  if (!base) {
    const std::lock_guard lock(writableMutex_);
    base = writableBase_.load(std::memory_order_relaxed);
    if (!base) {
      int descriptors[shm::kAttachDescriptors];
      if (Error error = exchange(socket_.get(), shm::AttachKind::writableSegment, "", node_, deadline, descriptors); !error.ok())
        return error;
      const shm::Descriptor segment(descriptors[0]);
      if (!segment) return Error{Code::protocol, "node " + node_ + " sent no segment"};
      Result<shm::MappedFile> map = shm::MappedFile::map(segment.get(), shm::Access::readWrite, "segment");
      if (!map) return map.error();
      if (map->bytes() != segmentMap_.bytes()) return Error{Code::corrupt, "segment: another size"};
      writableMap_ = std::move(map).value();
      base = writableMap_.data() + shm::kSegmentDataOffset;
      writableBase_.store(base, std::memory_order_release);
    }
  }
  // Page tables are filled a granule at a time, once: a first touch costs a fault per page.
  if (bytes >= 4096) {
    for (uint64_t granule = offset / kGranule; granule <= (offset + bytes - 1) / kGranule; ++granule) {
      if (populated_[granule].load(std::memory_order_relaxed)) continue;
      const uint64_t at = granule * kGranule;
      ::madvise(base + at, std::min(kGranule, view_.segmentBytes - at), MADV_POPULATE_WRITE);
      populated_[granule].store(true, std::memory_order_relaxed);
    }
  }
  return base + offset;
}

void Attachment::prefault() { ::madvise(segmentMap_.data(), segmentMap_.bytes(), MADV_POPULATE_READ); }

}  // namespace fluxon::client
