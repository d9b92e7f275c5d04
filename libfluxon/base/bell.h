// A bell: an eventfd with which one thread or process wakes another that waits in poll(), epoll or io_uring. It keeps no count: however
// often it is rung before it is cleared, it rings once.
//
// EAGAIN is no error: to ring() it says that the counter is full, so that the bell rings already; to clear(), that the bell has not rung.
// Any other error says that the descriptor is no eventfd. A bell that this process made is one. What another process sent as its bell may
// be anything; whoever receives one sets O_NONBLOCK, and if no ring reaches the sender, it alone waits longer. So ring() and clear()
// report no error.
#pragma once

#include <sys/eventfd.h>

namespace fluxon::bell {

// Below 0, with errno: the process or the system has no descriptor left, or no memory.
inline int make() { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
// For a thread that has io_uring read the bell: that read is to wait for a ring and not to end with EAGAIN.
inline int makeBlocking() { return ::eventfd(0, EFD_CLOEXEC); }

inline void ring(int bell) { (void)::eventfd_write(bell, 1); }
// True: somebody has rung it since it was cleared.
inline bool clear(int bell) {
  eventfd_t rings;
  return ::eventfd_read(bell, &rings) == 0;
}

}  // namespace fluxon::bell
