#include "shm/node_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fluxon::shm {
namespace {

constexpr size_t kMostDescriptors = 8;

Error checkPeer(int socket, const Paths& paths, const std::string& node) {
  ucred peer{};
  socklen_t length = sizeof peer;
  struct stat folder {};
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return systemError("SO_PEERCRED", errno);
  const std::string path = paths.nodeDir(node);
  if (::lstat(path.c_str(), &folder) != 0) return systemError("stat " + path, errno);
  const bool ours = folder.st_uid == ::geteuid() || folder.st_uid == 0 || !paths.isDefaultRoot;
  if (!S_ISDIR(folder.st_mode) || folder.st_uid != peer.uid || !ours) {
    return {Code::denied,
            path + " belongs to user " + std::to_string(folder.st_uid) + " and is served by user " + std::to_string(peer.uid)};
  }
  return {};
}

}  // namespace

Result<Descriptor> connectNode(const Paths& paths, const std::string& node) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return systemError("socket", errno);
  const std::string path = paths.file(node, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Error{Code::invalidArgument, path + " is too long for a socket"};
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    // The backlog is full.
    if (errno == EAGAIN) return Error{Code::timedOut, "node " + node + " does not accept clients"};
    if (errno == EACCES || errno == EPERM) return systemError("connect " + path, errno);
    return Error{Code::unavailable, "no owner of node " + node + " (" + path + ": " + std::strerror(errno) + ")"};
  }
  if (const Error stranger = checkPeer(socket.get(), paths, node); !stranger.ok()) return stranger;
  return socket;
}

bool hungUp(int socket) {
  pollfd look{socket, POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

ssize_t receiveMessage(int socket, void* message, size_t bytes, int* descriptors, size_t most) {
  std::fill(descriptors, descriptors + most, -1);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  iovec io{message, bytes};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_SPACE(sizeof(int) * std::min(most, kMostDescriptors));
  const ssize_t n = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  size_t count = 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&header); head; head = CMSG_NXTHDR(&header, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    count = std::min((head->cmsg_len - CMSG_LEN(0)) / sizeof(int), most);
    std::memcpy(descriptors, CMSG_DATA(head), count * sizeof(int));
    // As the kernel numbers them they may be 0, 1 or 2.
    for (size_t i = 0; i < count; ++i) descriptors[i] = Descriptor(descriptors[i]).release();
  }
  // Cut short with room left in the message: it is this process that may have no more. A peer that sends too many fills the room.
  const bool cut = (header.msg_flags & MSG_CTRUNC) != 0 && count < std::min(most, kMostDescriptors);
  if (!cut && std::find(descriptors, descriptors + count, -1) == descriptors + count) return n;
  for (size_t i = 0; i < count; ++i) (void)Descriptor(std::exchange(descriptors[i], -1));
  errno = EMFILE;
  return -1;
}

}  // namespace fluxon::shm
