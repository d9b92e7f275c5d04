#include "supervisor.h"

#include <signal.h>
#include <uv.h>

#include <algorithm>
#include <memory>

#include "base/check.h"

namespace fluxon::ctl {
namespace {

constexpr int kReadyFd = 3;
constexpr uint64_t kFirstPauseMs = 100, kLongestPauseMs = 10'000, kSoundMs = 10'000;
constexpr uint64_t kLongMs = 1'500;  // for a start
constexpr uint64_t kKillNodesMs = 3'500, kKillAllMs = 4'500;

enum class Phase { starting, up, stoppingNodes, stoppingMaster };
enum class State { down, starting, ready };

class Supervisor;
struct Child;

// One life of one process; gone when both of its handles are closed.
struct Life {
  uv_process_t process;
  uv_pipe_t readiness;
  Child* child;
  int open = 2;
};

struct Child {
  Supervisor* supervisor;
  ProcessSpec spec;
  State state = State::down;
  Life* life = nullptr;
  bool everReady = false;
  uint64_t startedMs = 0;
  uint64_t pauseMs = kFirstPauseMs;
  uv_timer_t restart;
};

uv_handle_t* handleOf(auto* handle) { return reinterpret_cast<uv_handle_t*>(handle); }
void closeHandle(auto* handle) {
  if (!uv_is_closing(handleOf(handle))) uv_close(handleOf(handle), nullptr);
}
void closePart(auto* handle) {
  if (uv_is_closing(handleOf(handle))) return;
  uv_close(handleOf(handle), [](uv_handle_t* closed) {
    auto* life = static_cast<Life*>(closed->data);
    if (--life->open == 0) delete life;
  });
}

class Supervisor {
 public:
  Supervisor(std::vector<ProcessSpec> processes, SupervisorEvents events)
      : events_(std::move(events)), masters_(!processes.empty() && processes.front().isMaster ? 1 : 0) {
    FLUXON_CHECK(uv_loop_init(&loop_) == 0, "uv_loop_init");
    for (ProcessSpec& spec : processes) {
      Child& child = *children_.emplace_back(std::make_unique<Child>());
      child.supervisor = this;
      child.spec = std::move(spec);
      uv_timer_init(&loop_, &child.restart);
      child.restart.data = &child;
    }
    for (uv_timer_t* timer : {&startTimer_, &longTimer_, &killTimer_}) {
      uv_timer_init(&loop_, timer);
      timer->data = this;
    }
  }

  int run(std::optional<uint32_t> startTimeoutMs) {
    static constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < 3; ++i) {
      uv_signal_init(&loop_, &signals_[i]);
      signals_[i].data = this;
      uv_signal_start(&signals_[i], [](uv_signal_t* signal, int) { static_cast<Supervisor*>(signal->data)->signalled(); }, kSignals[i]);
    }
    if (startTimeoutMs) {
      uv_timer_start(&startTimer_, [](uv_timer_t* timer) {
        static_cast<Supervisor*>(timer->data)->fail(sysexit(Code::timedOut), "not everything was ready in time; all is stopped");
      }, *startTimeoutMs, 0);
    }
    uv_timer_start(&longTimer_, [](uv_timer_t* timer) { static_cast<Supervisor*>(timer->data)->takesLong(); }, kLongMs, 0);
    startAfter("");
    uv_run(&loop_, UV_RUN_DEFAULT);
    FLUXON_CHECK(uv_loop_close(&loop_) == 0, "a handle of the supervisor is open");
    return status_;
  }

 private:
  bool stopping() const { return phase_ >= Phase::stoppingNodes; }

  void spawn(Child& child) {
    auto* life = new Life;
    life->child = &child;
    life->process.data = life->readiness.data = life;
    uv_pipe_init(&loop_, &life->readiness, 0);
    std::vector<std::string> arguments = child.spec.arguments;
    arguments.insert(arguments.end(), {"--ready-fd", std::to_string(kReadyFd)});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    uv_stdio_container_t stdio[kReadyFd + 1];
    stdio[0].flags = UV_IGNORE;
    for (int fd : {1, 2}) {
      stdio[fd].flags = UV_INHERIT_FD;
      stdio[fd].data.fd = child.spec.logFd;
    }
    stdio[kReadyFd].flags = static_cast<uv_stdio_flags>(UV_CREATE_PIPE | UV_WRITABLE_PIPE);
    stdio[kReadyFd].data.stream = reinterpret_cast<uv_stream_t*>(&life->readiness);
    uv_process_options_t options{};
    options.file = argv[0];
    options.args = argv.data();
    options.flags = UV_PROCESS_DETACHED;
    options.stdio = stdio;
    options.stdio_count = kReadyFd + 1;
    options.exit_cb = [](uv_process_t* process, int64_t status, int signal) {
      auto* ended = static_cast<Life*>(process->data);
      Child& of = *ended->child;
      of.supervisor->release(of);
      const std::string how = signal ? " was killed by signal " + std::to_string(signal) : " ended with status " + std::to_string(status);
      const bool itsOwn = signal == 0 && status > 0 && status < 126;
      of.supervisor->ended(of, of.spec.name + how, itsOwn ? static_cast<int>(status) : sysexit(Code::unavailable));
    };
    child.life = life;
    child.state = State::starting;
    child.startedMs = uv_now(&loop_);
    if (const int error = uv_spawn(&loop_, &life->process, &options); error != 0) {
      release(child);
      ended(child, child.spec.name + " cannot be started (" + arguments[0] + ": " + uv_strerror(error) + ")", sysexit(Code::unavailable));
      return;
    }
    listen(*life);
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
      if (child->spec.after == name && !stopping()) spawn(*child);
    }
  }

  void release(Child& child) {
    closePart(&child.life->readiness);
    closePart(&child.life->process);
    child.life = nullptr;
    child.state = State::down;
  }

  void becameReady(Child& child) {
    if (child.state != State::starting) return;
    child.state = State::ready;
    if (std::exchange(child.everReady, true)) {
      events_.problem(child.spec.name + " runs again, pid " + std::to_string(child.life->process.pid));
      return;
    }
    events_.ready(child.spec, child.life->process.pid);
    startAfter(child.spec.name);
    const bool all = std::all_of(children_.begin(), children_.end(), [](const auto& each) { return each->everReady; });
    if (phase_ == Phase::starting && all) {
      phase_ = Phase::up;
      uv_timer_stop(&startTimer_);
      events_.allReady();
    }
  }

  // `status` is what the whole ends with if it cannot go on.
  void ended(Child& child, const std::string& how, int status) {
    if (stopping()) {
      stopMore();
      return;
    }
    if (phase_ != Phase::up && !child.everReady) return fail(status, how + "; all is stopped");
    if (uv_now(&loop_) - child.startedMs >= kSoundMs) child.pauseMs = kFirstPauseMs;
    events_.problem(how + "; it starts again in " + std::to_string(child.pauseMs) + " ms");
    uv_timer_start(&child.restart, [](uv_timer_t* timer) {
      auto* due = static_cast<Child*>(timer->data);
      due->supervisor->spawn(*due);
    }, child.pauseMs, 0);
    child.pauseMs = std::min(child.pauseMs * 2, kLongestPauseMs);
  }

  void takesLong() {
    std::string names;
    for (const auto& child : children_) {
      if (child->life && !child->everReady) names += (names.empty() ? "" : ", ") + child->spec.name;
    }
    if (!stopping() && !names.empty()) events_.waiting(names);
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
    phase_ = Phase::stoppingNodes;
    uv_timer_stop(&startTimer_);
    for (const auto& child : children_) uv_timer_stop(&child->restart);
    for (size_t i = masters_; i < children_.size(); ++i) send(*children_[i], SIGTERM);
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
    if (child.life) uv_process_kill(&child.life->process, signal);
  }

  SupervisorEvents events_;
  uv_loop_t loop_;
  uv_timer_t startTimer_, longTimer_, killTimer_;
  uv_signal_t signals_[3];
  std::vector<std::unique_ptr<Child>> children_;
  size_t masters_;  // 0 or 1, at the front
  Phase phase_ = Phase::starting;
  int status_ = 0;
  char scratch_[64];
};

}  // namespace

int supervise(std::vector<ProcessSpec> processes, std::optional<uint32_t> startTimeoutMs, SupervisorEvents events) {
  ::signal(SIGPIPE, SIG_IGN);  // libuv gives children the default back
  Supervisor supervisor(std::move(processes), std::move(events));
  return supervisor.run(startTimeoutMs);
}

}  // namespace fluxon::ctl
