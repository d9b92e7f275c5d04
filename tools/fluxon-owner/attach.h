// One message with descriptors on a unix socket (SCM_RIGHTS): so an owner hands its files to clients and to ssdd.
#pragma once

#include <sys/socket.h>

#include <cstring>

namespace fluxon::owner {

// False: the peer is gone or does not read.
inline bool sendWithDescriptors(int socket, const void* bytes, size_t length, const int* descriptors, size_t count) {
  constexpr size_t kMost = 8;
  iovec io{const_cast<void*>(bytes), length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMost)] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(head), descriptors, sizeof(int) * count);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(length);
}

}  // namespace fluxon::owner
