// A client that speaks the attach protocol and writes its file by hand: what a broken one could do.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "shm/client_format.h"

namespace fluxon::test {

// A connected unix socket, or -1. Reads end after 5 s.
inline int connectTo(const std::string& path, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  const timeval patience{5, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

inline shm::AttachRequest attachRequest(shm::AttachKind kind = shm::AttachKind::attach) {
  shm::AttachRequest request{};
  std::memcpy(request.magic, shm::kAttachMagic, 8);
  request.version = shm::kFormatVersion;
  request.kind = static_cast<uint32_t>(kind);
  std::memcpy(request.name, "raw", 4);
  return request;
}

class RawClient {
 public:
  explicit RawClient(const std::string& socketPath) : socket_(connectTo(socketPath, SOCK_SEQPACKET)) { REQUIRE(socket_ >= 0); }
  RawClient(const RawClient&) = delete;
  ~RawClient() {
    if (file_) ::munmap(file_, sizeof(shm::ClientFile));
    for (const int fd : descriptors_) {
      if (fd >= 0) ::close(fd);
    }
    ::close(socket_);
  }

  // Sends bytes as one message; the code of the answer, or -1 when the owner ended the conversation.
  int ask(const void* message, size_t bytes) {
    if (::send(socket_, message, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) return -1;
    shm::AttachReply reply{};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors_)] = {};
    iovec io{&reply, sizeof reply};
    msghdr head{};
    head.msg_iov = &io;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    if (::recvmsg(socket_, &head, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof reply)) return -1;
    if (const cmsghdr* first = CMSG_FIRSTHDR(&head); first && !file_) {
      std::memcpy(descriptors_, CMSG_DATA(first), first->cmsg_len - CMSG_LEN(0));
      void* map = ::mmap(nullptr, sizeof(shm::ClientFile), PROT_READ | PROT_WRITE, MAP_SHARED, descriptors_[0], 0);
      REQUIRE(map != MAP_FAILED);
      file_ = static_cast<shm::ClientFile*>(map);
    }
    return static_cast<int>(reply.code);
  }
  void attach() {
    const shm::AttachRequest request = attachRequest();
    REQUIRE(ask(&request, sizeof request) == 0);
    REQUIRE(file_);
  }

  shm::ClientFile& file() { return *file_; }
  int socket() const { return socket_; }
  int descriptor(int index) const { return descriptors_[index]; }
  void ring(uint64_t count = 1) const { [[maybe_unused]] const ssize_t rung = ::write(descriptors_[4], &count, sizeof count); }

 private:
  int socket_;
  int descriptors_[shm::kAttachDescriptors] = {-1, -1, -1, -1, -1};
  shm::ClientFile* file_ = nullptr;
};

}  // namespace fluxon::test
