#include "client/attachment.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "base/extent.h"
#include "shm/node_socket.h"
#include "shm/segment_format.h"
#include "shm/time_namespace.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace fluxon::client {
namespace {

constexpr Duration kLook = milliseconds(100);  // between looks at a clock that goes on while the machine sleeps
constexpr uint64_t kGranule = 256 * 1024;      // unit of populating the writable mapping
constexpr uint64_t kStep = 256 * kGranule;     // of other mappings, between two looks at the clock

Error ended(const std::string& node) { return {Code::unavailable, "node " + node + " ended while attaching"}; }

Error readable(int socket, const std::string& node, Time deadline) {
  pollfd wait{socket, POLLIN, 0};
  for (;;) {
    const Duration left = deadline - bootTime();
    if (left.ns <= 0) return {Code::timedOut, "node " + node + " did not answer the attach request"};
    const timespec most{left.ns / 1'000'000'000, left.ns % 1'000'000'000};
    const int ready = ::ppoll(&wait, 1, &most, nullptr);
    if (ready < 0 && errno != EINTR) return systemError("poll", errno);
    if (ready > 0) return {};
  }
}

// Answers that nobody waits for any more; they would keep others out of the socket, and their descriptors open.
void empty(int socket) {
  for (;;) {
    char bytes[1];
    int numbers[shm::kAttachDescriptors];
    const ssize_t n = shm::receiveMessage(socket, bytes, sizeof bytes, numbers, shm::kAttachDescriptors);
    if (n < 0 && errno == EMFILE) continue;
    if (n <= 0) return;
    for (const int number : numbers) {
      if (number >= 0) ::close(number);
    }
  }
}

// A hint.
void populatePages(char* at, uint64_t bytes, int advice, Time deadline) {
  for (uint64_t done = 0; done < bytes && bootTime() < deadline; done += kStep) ::madvise(at + done, std::min(kStep, bytes - done), advice);
}

}  // namespace

// One message each way. Its descriptors are `descriptors`, up to kAttachDescriptors. One thread at a time.
Error Attachment::exchange(shm::AttachKind kind, const std::string& name, Time deadline, std::vector<shm::Descriptor>& descriptors) {
  shm::AttachRequest request{};
  std::memcpy(request.magic, shm::kAttachMagic, 8);
  request.version = shm::kFormatVersion;
  request.kind = static_cast<uint32_t>(kind);
  request.number = ++number_;
  std::memcpy(request.name, name.data(), std::min(name.size(), sizeof request.name - 1));
  empty(socket_.get());
  const Time before = bootTime();
  // EAGAIN: it does not read what we have sent before.
  if (::send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request))
    return errno == EAGAIN ? Error{Code::timedOut, "node " + node_ + " does not read attach requests"} : ended(node_);
  for (;;) {
    if (Error error = readable(socket_.get(), node_, deadline); !error.ok()) return error;
    shm::AttachReply reply{};
    int numbers[shm::kAttachDescriptors];
    const ssize_t n = shm::receiveMessage(socket_.get(), &reply, sizeof reply, numbers, shm::kAttachDescriptors);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0 && errno == EMFILE) return systemError("descriptors of node " + node_, errno);
    descriptors.clear();
    for (const int number : numbers) {
      if (number >= 0) descriptors.emplace_back(number);
    }
    if (n <= 0) return ended(node_);
    if (n != static_cast<ssize_t>(sizeof reply) || std::memcmp(reply.magic, shm::kAttachMagic, 8) != 0 ||
        reply.version != shm::kFormatVersion) {
      return {Code::protocol, "node " + node_ + " speaks another version"};
    }
    if (reply.number != request.number) continue;  // nobody waited for that one
    if (reply.code != 0) return {codeFromWire(reply.code), std::string(reply.detail, ::strnlen(reply.detail, sizeof reply.detail))};
    const Time after = bootTime();
    clockWidth_ = after - before;
    return shm::sameClock("node " + node_, before, Time{reply.clockNs}, after);
  }
}

// An answer that took long proves little about the clock: it is asked for again.
Error Attachment::confirmClock(Time deadline) {
  while (clockWidth_ > shm::kClockSlack) {
    std::vector<shm::Descriptor> none;
    if (Error error = exchange(shm::AttachKind::clock, "", deadline, none); !error.ok()) return error;
  }
  return {};
}

Result<Attachment*> Attachment::attach(const shm::Paths& paths, const std::string& node, const std::string& name, As as, Time deadline,
                                       const std::function<void()>& reached) {
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
  if (reached) reached();
  const shm::AttachKind kind = as == As::owner ? shm::AttachKind::attachOwner : shm::AttachKind::attach;
  std::vector<shm::Descriptor> descriptors;  // the mappings stay, and with the first one its lock
  if (Error error = attachment->exchange(kind, name, deadline, descriptors); !error.ok()) return error;
  if (Error error = attachment->confirmClock(deadline); !error.ok()) return error;
  if (Error error = attachment->map(descriptors, deadline); !error.ok()) return error;
  attachment->bell_ = std::move(descriptors[4]);
  return attachment.release();
}

Error Attachment::map(const std::vector<shm::Descriptor>& descriptors, Time deadline) {
  if (descriptors.size() != shm::kAttachDescriptors) return {Code::protocol, "node " + node_ + " sent too few descriptors"};
  shm::MappedFile* const maps[] = {&fileMap_, &directoryMap_, &keysMap_, &segmentMap_};
  static constexpr const char* kNames[] = {"client file", "directory", "keys", "segment"};
  for (size_t i = 0; i < 4; ++i) {
    Result<shm::MappedFile> map =
        shm::MappedFile::map(descriptors[i].get(), i == 0 ? shm::Access::readWrite : shm::Access::readOnly, kNames[i]);
    if (!map) return map.error();
    *maps[i] = std::move(map).value();
  }
  if (const char* why = shm::refuse(file().header.file, shm::kClientMagic, fileMap_.bytes()))
    return {Code::corrupt, std::string("client file: ") + why};
  if (fileMap_.bytes() != sizeof(shm::ClientFile)) return {Code::corrupt, "client file: another size"};
  Result<shm::DirectoryView> view = shm::DirectoryView::over(directoryMap_.data(), directoryMap_.bytes(), keysMap_.data(), keysMap_.bytes(),
                                                             segmentMap_.data(), segmentMap_.bytes());
  if (!view) return view.error();
  view_ = view.value();
  populatePages(directoryMap_.data(), directoryMap_.bytes(), MADV_POPULATE_READ, deadline);
  hazards_ = std::make_unique<shm::HazardTable>(file().hazards);
  ring_ = std::make_unique<CommandRing>(file(), *view_.header, CommandRing::Owner{.bell = descriptors[4].get(), .socket = socket_.get()});
  populated_ = std::vector<std::atomic<bool>>(view_.segmentBytes / kGranule + 1);
  return {};
}

Attachment::~Attachment() {
  if (fileMap_) file().header.detached.store(1, std::memory_order_release);
}

struct Attachment::Graveyard {
  const uint64_t generation = forkGeneration();
  std::mutex mutex;
  Attachment* first = nullptr;  // of a list, so that closing needs no memory

  void sweep() {
    for (Attachment** at = &first; *at;) {
      Attachment* const attachment = *at;
      if (attachment->users_.load(std::memory_order_acquire) != 0 || attachment->hazards_->holders() != 0) {
        at = &attachment->nextRetired_;
        continue;
      }
      *at = attachment->nextRetired_;
      delete attachment;
    }
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
  nextRetired_ = std::exchange(yard.first, this);
  users_.fetch_sub(1, std::memory_order_acq_rel);
  yard.sweep();
}

void Attachment::sweep() {
  Graveyard& yard = graveyard();
  const std::lock_guard lock(yard.mutex);
  yard.sweep();
}

// Threads that need the mapping while one makes it wait for that one, each until its own deadline.
Result<char*> Attachment::writable(uint64_t offset, uint64_t bytes, Time deadline) {
  if (offset > view_.segmentBytes || bytes > view_.segmentBytes - offset) return Error{Code::corrupt, "a grant outside the segment"};
  if (char* const base = writableBase_.load(std::memory_order_acquire)) return base + offset;
  std::unique_lock lock(writableMutex_);
  while (makingWritable_) {
    const Duration left = deadline - bootTime();
    if (left.ns <= 0) return Error{Code::timedOut, "node " + node_ + " did not hand over its segment"};
    writableDone_.wait_for(lock, std::chrono::nanoseconds(std::min(left, kLook).ns));
  }
  if (!writableBase_.load(std::memory_order_relaxed)) {
    struct Making {
      Making(Attachment& attachment, std::unique_lock<std::mutex>& held) : of(attachment), lock(held) {
        of.makingWritable_ = true;
        lock.unlock();
      }
      ~Making() {
        lock.lock();
        of.makingWritable_ = false;
        of.writableDone_.notify_all();
      }
      Attachment& of;
      std::unique_lock<std::mutex>& lock;
    };
    const Error error = [&] {
      const Making making(*this, lock);
      return mapWritable(deadline);
    }();
    if (!error.ok()) return error;
  }
  return writableBase_.load(std::memory_order_relaxed) + offset;
}

Error Attachment::mapWritable(Time deadline) {
  std::vector<shm::Descriptor> descriptors;
  if (Error error = exchange(shm::AttachKind::writableSegment, "", deadline, descriptors); !error.ok()) return error;
  if (descriptors.empty()) return {Code::protocol, "node " + node_ + " sent no segment"};
  Result<shm::MappedFile> map = shm::MappedFile::map(descriptors.front().get(), shm::Access::readWrite, "segment");
  if (!map) return map.error();
  if (map->bytes() != segmentMap_.bytes()) return {Code::corrupt, "segment: another size"};
  writableMap_ = std::move(map).value();
  writableBase_.store(writableMap_.data() + shm::kSegmentDataOffset, std::memory_order_release);
  return {};
}

void Attachment::populate(const char* place, uint64_t bytes, Time deadline) {
  if (bytes < kLargeStep) return;
  char* const base = writableBase_.load(std::memory_order_acquire);
  const auto offset = static_cast<uint64_t>(place - base);
  // A granule at a time, once.
  for (uint64_t granule = offset / kGranule; granule <= (offset + bytes - 1) / kGranule; ++granule) {
    if (populated_[granule].load(std::memory_order_relaxed)) continue;
    if (bootTime() >= deadline) return;
    const uint64_t at = granule * kGranule;
    ::madvise(base + at, std::min(kGranule, view_.segmentBytes - at), MADV_POPULATE_WRITE);
    populated_[granule].store(true, std::memory_order_relaxed);
  }
}

void Attachment::prefault() { populatePages(segmentMap_.data(), segmentMap_.bytes(), MADV_POPULATE_READ, Time::never()); }

}  // namespace fluxon::client
