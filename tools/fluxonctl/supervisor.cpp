#include "supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/check.h"
#include "shm/mapped_file.h"
#include "spawn.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kFirstPauseMs = 100, kLongestPauseMs = 10'000, kSoundMs = 10'000;
constexpr uint64_t kLongMs = 1'500;  // for a start
constexpr uint64_t kSecondMs = 1'000;
constexpr uint64_t kKillNodesMs = 3'500, kKillAllMs = 4'500;

enum class Phase { starting, up, stoppingNodes, stoppingMaster };
enum class State { down, starting, ready };

class Supervisor;
struct Child;

// One life of one process; gone when its handle is closed.
struct Life {
  pid_t pid = 0;
  uv_pipe_t readiness;
  Child* child;
};

struct Child {
  Supervisor* supervisor;
  ProcessSpec spec;
  State state = State::down;
  Life* life = nullptr;
  bool everReady = false;
  bool left = false;  // is not started again
  uint64_t startedMs = 0;
  uint64_t pauseMs = kFirstPauseMs;
  uv_timer_t restart;
};

uv_handle_t* handleOf(auto* handle) { return reinterpret_cast<uv_handle_t*>(handle); }
void closeHandle(auto* handle) {
  if (!uv_is_closing(handleOf(handle))) uv_close(handleOf(handle), nullptr);
}
bool isIgnored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// libuv aborts where it gets no descriptors for its signals: whether there are enough is tried before.
Error startLoop(uv_loop_t& loop) {
  constexpr int kDescriptors = 8;
  std::vector<shm::Descriptor> spare;
  for (int i = 0; i < kDescriptors; ++i) {
    spare.emplace_back(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!spare.back()) return systemError("start the event loop", errno);
  }
  spare.clear();
  const int error = uv_loop_init(&loop);
  return error == 0 ? Error{} : systemError("start the event loop", -error);
}

class Supervisor {
 public:
  // `loop` lives as long as this.
  Supervisor(uv_loop_t& loop, std::vector<ProcessSpec> processes, SupervisorEvents events)
      : loop_(loop), events_(std::move(events)), masters_(!processes.empty() && processes.front().isMaster ? 1 : 0) {
    for (ProcessSpec& spec : processes) {
      Child& child = *children_.emplace_back(std::make_unique<Child>());
      child.supervisor = this;
      child.spec = std::move(spec);
      uv_timer_init(&loop_, &child.restart);
      child.restart.data = &child;
    }
    for (uv_timer_t* timer : {&startTimer_, &longTimer_, &killTimer_, &secondTimer_}) {
      uv_timer_init(&loop_, timer);
      timer->data = this;
    }
  }

  int run(std::optional<uint32_t> startTimeoutMs, int stopFd) {
    listenForEnds(stopFd);
    if (startTimeoutMs) {
      uv_timer_start(
          &startTimer_,
          [](uv_timer_t* timer) {
            auto* self = static_cast<Supervisor*>(timer->data);
            self->fail(sysexit(Code::timedOut), "not everything was ready in time" + self->whoIsNotReady() + "; all is stopped");
          },
          *startTimeoutMs, 0);
    }
    const auto takesLong = [](uv_timer_t* timer) { static_cast<Supervisor*>(timer->data)->takesLong(); };
    uv_timer_start(&longTimer_, takesLong, kLongMs, kSecondMs);
    const auto second = [](uv_timer_t* timer) {
      auto* self = static_cast<Supervisor*>(timer->data);
      self->listenForStop(self->events_.everySecond());
    };
    uv_timer_start(&secondTimer_, second, kSecondMs, kSecondMs);
    startAfter("");
    uv_run(&loop_, UV_RUN_DEFAULT);
    return status_;
  }

 private:
  bool stopping() const { return phase_ >= Phase::stoppingNodes; }

  // Signals, the ends of children among them, and who asks for the stop through the socket.
  void listenForEnds(int stopFd) {
    static constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    sigset_t set;
    ::sigemptyset(&set);
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      ::sigaddset(&set, kSignals[i]);
      uv_signal_init(&loop_, &signals_[i]);
      signals_[i].data = this;
      if (kSignals[i] != SIGCHLD && isIgnored(kSignals[i])) continue;
      uv_signal_start(
          &signals_[i],
          [](uv_signal_t* handle, int signal) {
            auto* self = static_cast<Supervisor*>(handle->data);
            signal == SIGCHLD ? self->reap() : self->signalled();
          },
          kSignals[i]);
    }
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    listenForStop(stopFd);
  }

  // On another descriptor than before, or the first one.
  void listenForStop(int stopFd) {
    if (stopFd == std::exchange(stopFd_, stopFd)) return;
    dropStop();
    stopPoll_ = new uv_poll_t;
    FLUXON_CHECK(uv_poll_init(&loop_, stopPoll_, stopFd) == 0, "uv_poll_init");
    stopPoll_->data = this;
    uv_poll_start(stopPoll_, UV_READABLE, [](uv_poll_t* poll, int, int) {
      auto* self = static_cast<Supervisor*>(poll->data);
      int fd = -1;
      uv_fileno(handleOf(poll), &fd);
      const ssize_t n = ::recv(fd, self->scratch_, sizeof self->scratch_, MSG_DONTWAIT);
      if (n > 0 && std::string_view(self->scratch_, static_cast<size_t>(n)) == kStopMessage && !self->stopping()) self->stop();
    });
  }

  void dropStop() {
    if (uv_poll_t* poll = std::exchange(stopPoll_, nullptr))
      uv_close(handleOf(poll), [](uv_handle_t* closed) { delete reinterpret_cast<uv_poll_t*>(closed); });
  }

  void start(Child& child) {
    events_.starting(child.spec);
    child.life = new Life;
    child.life->child = &child;
    child.life->readiness.data = child.life;
    uv_pipe_init(&loop_, &child.life->readiness, 0);
    child.state = State::starting;
    child.startedMs = uv_now(&loop_);
    const Error error = run(*child.life);
    if (error.ok()) return;
    release(child);
    ended(child, child.spec.name + " cannot be started (" + error.detail + ")", sysexit(error.code));
  }

  Error run(Life& life) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return systemError("pipe", errno);
    const shm::Descriptor writing(ends[1]);
    FLUXON_CHECK(uv_pipe_open(&life.readiness, ends[0]) == 0, "uv_pipe_open");
    const ProcessSpec& spec = life.child->spec;
    std::vector<std::string> arguments = spec.arguments;
    arguments.insert(arguments.end(), {"--ready-fd", std::to_string(kReadyFd)});
    const Result<pid_t> pid = spawn(arguments, spec.logFd, writing.get());
    if (!pid) return pid.error();
    life.pid = pid.value();
    listen(life);
    return {};
  }

  // A child that is not reaped keeps its pid, so the pid is its own.
  void reap() {
    for (const auto& child : children_) {
      int status = 0;
      if (!child->life || ::waitpid(child->life->pid, &status, WNOHANG) != child->life->pid) continue;
      release(*child);
      if (WIFSIGNALED(status)) {
        ended(*child, child->spec.name + " was killed by signal " + std::to_string(WTERMSIG(status)), sysexit(Code::unavailable));
        continue;
      }
      const int code = WEXITSTATUS(status);
      if (code == 0 && child->everReady && !child->spec.node.empty() && !stopping() && events_.hasLeft(child->spec)) {
        leave(*child);
        continue;
      }
      const bool itsOwn = code > 0 && code < 126;
      ended(*child, child->spec.name + " ended with status " + std::to_string(code), itsOwn ? code : sysexit(Code::unavailable));
    }
  }

  // Its newline says that the process is ready.
  void listen(Life& life) {
    uv_read_start(
        reinterpret_cast<uv_stream_t*>(&life.readiness),
        [](uv_handle_t* handle, size_t, uv_buf_t* buffer) {
          auto& scratch = static_cast<Life*>(handle->data)->child->supervisor->scratch_;
          *buffer = uv_buf_init(scratch, sizeof scratch);
        },
        [](uv_stream_t* stream, ssize_t n, const uv_buf_t*) {
          auto* from = static_cast<Life*>(stream->data);
          if (n == 0) return;
          Child& child = *from->child;
          uv_read_stop(stream);
          if (n > 0) child.supervisor->becameReady(child);
        });
  }

  // Those that waited for this process only; "": for none.
  void startAfter(const std::string& name) {
    for (const auto& child : children_) {
      if (child->spec.after == name && !stopping()) start(*child);
    }
  }

  void release(Child& child) {
    uv_close(handleOf(&child.life->readiness), [](uv_handle_t* closed) { delete static_cast<Life*>(closed->data); });
    child.life = nullptr;
    child.state = State::down;
  }

  void becameReady(Child& child) {
    if (child.state != State::starting) return;
    child.state = State::ready;
    if (std::exchange(child.everReady, true)) {
      events_.problem(child.spec.name + " runs again, pid " + std::to_string(child.life->pid));
      return;
    }
    events_.ready(child.spec, child.life->pid);
    startAfter(child.spec.name);
    lookWhetherAllReady();
  }

  void lookWhetherAllReady() {
    const bool all = std::all_of(children_.begin(), children_.end(), [](const auto& each) { return each->everReady || each->left; });
    if (phase_ != Phase::starting || !all) return;
    phase_ = Phase::up;
    uv_timer_stop(&startTimer_);
    events_.allReady();
  }

  // An owner that was drained, and its ssdd with it.
  void leave(Child& owner) {
    events_.problem(owner.spec.name + " has left: it is not started again");
    owner.left = true;
    for (const auto& child : children_) {
      if (child->spec.after != owner.spec.name) continue;
      child->left = true;
      uv_timer_stop(&child->restart);
      send(*child, SIGTERM);
    }
    lookWhetherAllReady();
    endWhenAllHaveLeft();
  }
  void endWhenAllHaveLeft() {
    if (!std::all_of(children_.begin(), children_.end(), [](const auto& each) { return each->left && !each->life; })) return;
    events_.problem("no process is left: all is stopped");
    stop();
  }

  // `status` is what the whole ends with if it cannot go on.
  void ended(Child& child, const std::string& how, int status) {
    if (stopping()) {
      stopMore();
      return;
    }
    if (child.left) return endWhenAllHaveLeft();
    if (phase_ != Phase::up && !child.everReady) {
      const std::string words = events_.lastWords(child.spec);
      return fail(status, how + (words.empty() ? "" : " (" + words + ")") + "; all is stopped");
    }
    if (uv_now(&loop_) - child.startedMs >= kSoundMs) child.pauseMs = kFirstPauseMs;
    events_.problem(how + "; it starts again in " + std::to_string(child.pauseMs) + " ms");
    uv_timer_start(
        &child.restart,
        [](uv_timer_t* timer) {
          auto* due = static_cast<Child*>(timer->data);
          due->supervisor->start(*due);
        },
        child.pauseMs, 0);
    child.pauseMs = std::min(child.pauseMs * 2, kLongestPauseMs);
  }

  std::vector<const ProcessSpec*> notReady() const {
    std::vector<const ProcessSpec*> processes;
    for (const auto& child : children_) {
      if (child->life && !child->everReady) processes.push_back(&child->spec);
    }
    return processes;
  }
  // ": fluxon-owner[n0] (why)", or empty.
  std::string whoIsNotReady() const {
    std::string names;
    for (const ProcessSpec* process : notReady()) {
      const std::string why = events_.warning(*process);
      names += (names.empty() ? ": " : ", ") + process->name + (why.empty() ? "" : " (" + why + ")");
    }
    return names;
  }
  void takesLong() {
    if (phase_ != Phase::starting) {
      uv_timer_stop(&longTimer_);
      return;
    }
    const std::vector<const ProcessSpec*> processes = notReady();
    if (!processes.empty()) events_.waiting(processes);
  }

  void fail(int status, const std::string& why) {
    if (stopping()) return;
    status_ = status;
    events_.problem(why);
    stop();
  }

  void signalled() {
    if (stopping()) return killAll();  // the second one: at once
    stop();
  }

  void stop() {
    const bool wasUp = std::exchange(phase_, Phase::stoppingNodes) == Phase::up;
    uv_timer_stop(&startTimer_);
    uv_timer_stop(&secondTimer_);
    for (const auto& child : children_) uv_timer_stop(&child->restart);
    for (size_t i = masters_; i < children_.size(); ++i) send(*children_[i], wasUp && !children_[i]->spec.node.empty() ? SIGUSR1 : SIGTERM);
    const auto due = [](uv_timer_t* timer) { static_cast<Supervisor*>(timer->data)->timeToKill(); };
    uv_timer_start(&killTimer_, due, kKillNodesMs, kKillAllMs - kKillNodesMs);
    stopMore();
  }

  // Goes as far as the processes that are left allow.
  void stopMore() {
    const auto nodes = children_.begin() + static_cast<ptrdiff_t>(masters_);
    const bool nodesLeft = std::any_of(nodes, children_.end(), [](const auto& child) { return child->life != nullptr; });
    if (phase_ == Phase::stoppingNodes && !nodesLeft) {
      phase_ = Phase::stoppingMaster;
      if (masters_ == 1) send(*children_.front(), SIGTERM);
    }
    if (nodesLeft || (masters_ == 1 && children_.front()->life)) return;
    for (uv_signal_t& signal : signals_) closeHandle(&signal);
    closeHandle(&startTimer_);
    closeHandle(&longTimer_);
    closeHandle(&killTimer_);
    closeHandle(&secondTimer_);
    dropStop();
    for (const auto& child : children_) closeHandle(&child->restart);
  }

  void timeToKill() {
    if (phase_ == Phase::stoppingMaster) return killAll();
    for (size_t i = masters_; i < children_.size(); ++i) kill(*children_[i]);
  }
  void killAll() {
    for (const auto& child : children_) kill(*child);
  }
  void kill(Child& child) {
    if (!child.life) return;
    events_.problem(child.spec.name + " did not end: SIGKILL");
    send(child, SIGKILL);
  }
  void send(Child& child, int signal) {
    if (child.life) ::kill(child.life->pid, signal);
  }

  uv_loop_t& loop_;
  SupervisorEvents events_;
  uv_timer_t startTimer_, longTimer_, killTimer_, secondTimer_;
  uv_poll_t* stopPoll_ = nullptr;
  int stopFd_ = -1;
  uv_signal_t signals_[4];
  std::vector<std::unique_ptr<Child>> children_;
  size_t masters_;  // 0 or 1, at the front
  Phase phase_ = Phase::starting;
  int status_ = 0;
  char scratch_[64];
};

}  // namespace

int supervise(std::vector<ProcessSpec> processes, std::optional<uint32_t> startTimeoutMs, int stopFd, SupervisorEvents events) {
  ::signal(SIGPIPE, SIG_IGN);
  uv_loop_t loop;
  if (const Error error = startLoop(loop); !error.ok()) {
    events.problem(error.message());
    return sysexit(error.code);
  }
  const int status = Supervisor(loop, std::move(processes), std::move(events)).run(startTimeoutMs, stopFd);
  FLUXON_CHECK(uv_loop_close(&loop) == 0, "a handle of the supervisor is open");
  return status;
}

}  // namespace fluxon::ctl
