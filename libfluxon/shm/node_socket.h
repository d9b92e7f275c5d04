// The socket of a node, from the side of those who attach: SOCK_SEQPACKET, one message each way, descriptors with the answer.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"

namespace fluxon::shm {

// One try, which does not block: a connection to the owner of a node. unavailable: there is none. timedOut: it does not accept just now.
// denied: who listens is not who the folder belongs to, or under the default root neither this user nor root: anybody may make a folder
// of that name in /dev/shm.
Result<Descriptor> connectNode(const Paths& paths, const std::string& node);

// The other side has ended, whatever still waits in the socket to be read. No system call blocks.
bool hungUp(int socket);

// One message of a socket that is readable. Up to `most` descriptors come with it; the others stay -1. What recvmsg returns; and -1 with
// EMFILE when this process had no room for the descriptors of the message, which is gone then.
ssize_t receiveMessage(int socket, void* message, size_t bytes, int* descriptors, size_t most);

}  // namespace fluxon::shm
