#include "owner_link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/bell.h"
#include "shm/node_socket.h"
#include "shm/segment_format.h"
#include "shm/time_namespace.h"

namespace fluxon::ssdd {
namespace {

constexpr auto kPatience = 5 * kj::SECONDS;  // with an owner that does not answer

}  // namespace

Session::Session(kj::UnixEventPort& port, shm::Descriptor socket, int (&descriptors)[ssd::kSsddDescriptors])
    : port_(port), socket_(std::move(socket)), ownersBell_(descriptors[2]), bell_(descriptors[3]) {}

Error Session::map(const shm::Descriptor& file, const shm::Descriptor& segment) {
  if (!file || !segment || !ownersBell_ || !bell_) return {Code::protocol, "the owner sent too few descriptors"};
  for (const int bell : {bell_.get(), ownersBell_.get()}) {
    if (::fcntl(bell, F_SETFL, O_NONBLOCK) != 0) return systemError("fcntl of a bell", errno);
  }
  Result<shm::MappedFile> mapped = shm::MappedFile::map(file.get(), shm::Access::readWrite, "ssdd file");
  if (!mapped) return mapped.error();
  fileMap_ = std::move(mapped).value();
  if (fileMap_.bytes() != sizeof(ssd::SsddFile)) return {Code::corrupt, "ssdd file: another size"};
  if (const char* why = shm::refuse(this->file().header.file, ssd::kSsddMagic, fileMap_.bytes()))
    return {Code::corrupt, std::string("ssdd file: ") + why};
  mapped = shm::MappedFile::map(segment.get(), shm::Access::readWrite, "segment");
  if (!mapped) return mapped.error();
  segmentMap_ = std::move(mapped).value();
  segmentGuard_ = shm::FaultGuard::vital(segmentMap_, "the segment");
  if (segmentMap_.bytes() <= shm::kSegmentDataOffset) return {Code::corrupt, "segment: no values"};
  const auto& header = *reinterpret_cast<const shm::SegmentHeader*>(segmentMap_.data());
  if (const char* why = shm::refuse(header.file, shm::kSegmentMagic, segmentMap_.bytes()))
    return {Code::corrupt, std::string("segment: ") + why};
  segmentBytes_ = segmentMap_.bytes() - shm::kSegmentDataOffset;
  if (header.dataBytes != segmentBytes_) return {Code::corrupt, "segment: another size"};
  bellObserver_ = kj::heap<Observer>(port_, bell_.get(), Observer::OBSERVE_READ);
  socketObserver_ = kj::heap<Observer>(port_, socket_.get(), Observer::OBSERVE_READ);
  return {};
}

char* Session::segment() const { return segmentMap_.data() + shm::kSegmentDataOffset; }

uint64_t Session::populatedBytes() const {
  return reinterpret_cast<const shm::SegmentHeader*>(segmentMap_.data())->populatedBytes.load(std::memory_order_relaxed);
}

kj::Promise<void> Session::rung() {
  if (bell::clear(bell_.get())) return kj::READY_NOW;
  return bellObserver_->whenBecomesReadable().then([this] { return rung(); });
}

// The owner sends nothing on this socket after attaching: a message counts as the end of the session.
kj::Promise<void> Session::ended() {
  char byte;
  const ssize_t n = ::recv(socket_.get(), &byte, sizeof byte, MSG_DONTWAIT);
  if (n >= 0 || (errno != EAGAIN && errno != EINTR)) return kj::READY_NOW;
  return socketObserver_->whenBecomesReadable().then([this] { return ended(); });
}

kj::Promise<Result<std::shared_ptr<Session>>> OwnerLink::attach(const ssd::SsddAttach& request) {
  using Attached = Result<std::shared_ptr<Session>>;
  Result<shm::Descriptor> connected = shm::connectNode(paths_, node_);
  if (!connected) return Attached(connected.error());
  shm::Descriptor socket = std::move(connected).value();
  const Time asked = bootTime();
  if (::send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request))
    return Attached(systemError("attach to the owner of node " + node_, errno));
  using Observer = kj::UnixEventPort::FdObserver;
  auto observer = kj::heap<Observer>(daemon_.port(), socket.get(), Observer::OBSERVE_READ);
  auto readable = observer->whenBecomesReadable().then([] { return true; });
  auto late = daemon_.timer().afterDelay(kPatience).then([] { return false; });
  return readable.exclusiveJoin(kj::mv(late))
      .attach(kj::mv(observer))
      .then([this, asked, socket = std::move(socket)](bool inTime) mutable -> Attached {
        if (!inTime) return Error{Code::timedOut, "the owner of node " + node_ + " does not answer"};
        return answered(std::move(socket), asked);
      });
}

Result<std::shared_ptr<Session>> OwnerLink::answered(shm::Descriptor socket, Time asked) {
  ssd::SsddAttached reply{};
  int descriptors[ssd::kSsddDescriptors];
  const ssize_t n = shm::receiveMessage(socket.get(), &reply, sizeof reply, descriptors, ssd::kSsddDescriptors);
  if (n < 0 && errno == EMFILE) return systemError("descriptors of the owner of node " + node_, errno);
  const shm::Descriptor file(descriptors[0]), segment(descriptors[1]);
  const std::shared_ptr<Session> session(new Session(daemon_.port(), std::move(socket), descriptors));
  if (n <= 0) return Error{Code::unavailable, "the owner of node " + node_ + " ended while attaching"};
  if (n != static_cast<ssize_t>(sizeof reply) || std::memcmp(reply.magic, ssd::kSsddAttachMagic, 8) != 0 ||
      reply.version != ssd::kSsddVersion) {
    return Error{Code::protocol, "the owner of node " + node_ + " speaks another version"};
  }
  if (reply.code != 0) return Error{codeFromWire(reply.code), std::string(reply.detail, ::strnlen(reply.detail, sizeof reply.detail))};
  if (const Error error = shm::sameClock("the owner of node " + node_, asked, Time{reply.clockNs}, bootTime()); !error.ok()) return error;
  if (const Error error = session->map(file, segment); !error.ok()) return error;
  return session;
}

}  // namespace fluxon::ssdd
