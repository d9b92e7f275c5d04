#include "spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/thread.h"
#include "shm/mapped_file.h"

namespace fluxon::ctl {
namespace {

// Calls each(fd) for every open descriptor from `first` on, where the kernel (before 5.9) has no close_range(2).
template <class Each>
void eachDescriptor(int first, Each each) {
  DIR* dir = ::opendir("/proc/self/fd");
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd >= first && fd != ::dirfd(dir)) each(fd);
  }
  ::closedir(dir);
}

// In the new process. Comes back only if the program cannot be run, with the reason; `failedFd` is then where to tell it.
int become(std::vector<char*>& argv, int logFd, int readyFd, int& failedFd, pid_t parent) {
  ::setsid();
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return errno;
  if (::getppid() != parent) return ESRCH;  // it has ended before that
  ::signal(SIGPIPE, SIG_DFL);               // what the parent has ignored for itself
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // First out of the way of 0 to 3.
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int log = ::fcntl(logFd, F_DUPFD_CLOEXEC, kReadyFd + 1), ready = ::fcntl(readyFd, F_DUPFD_CLOEXEC, kReadyFd + 1);
  const int failed = ::fcntl(failedFd, F_DUPFD_CLOEXEC, kReadyFd + 1);
  if (null < 0 || log < 0 || ready < 0 || failed < 0) return errno;
  failedFd = failed;
  if (::dup2(null, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0 || ::dup2(ready, kReadyFd) < 0) return errno;
  if (::close_range(kReadyFd + 1, ~0u, CLOSE_RANGE_CLOEXEC) != 0) {
    eachDescriptor(kReadyFd + 1, [](int fd) { ::fcntl(fd, F_SETFD, FD_CLOEXEC); });
  }
  ::execvp(argv[0], argv.data());
  return errno;
}

}  // namespace

Result<pid_t> spawn(const std::vector<std::string>& arguments, int logFd, int readyFd) {
  std::vector<std::string> words = arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return systemError("pipe", errno);
  const shm::Descriptor reading(ends[0]);
  shm::Descriptor writing(ends[1]);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) return taskError("fork", errno);
  if (pid == 0) {
    int failedFd = writing.get();
    const int error = become(argv, logFd, readyFd, failedFd, parent);
    const ssize_t told = ::write(failedFd, &error, sizeof error);
    ::_exit(told == sizeof error ? 127 : 126);
  }
  writing = shm::Descriptor();
  int error = 0;
  ssize_t n;
  while ((n = ::read(reading.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (n != sizeof error) return pid;  // closed by exec
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return systemError(arguments[0], error);
}

void closeFrom(int first) {
  if (::close_range(static_cast<unsigned>(first), ~0u, 0) != 0) eachDescriptor(first, [](int fd) { ::close(fd); });
}

}  // namespace fluxon::ctl
