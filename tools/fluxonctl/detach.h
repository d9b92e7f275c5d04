// `up` in the background: a process of its own session that keeps nothing of its caller, neither folder nor descriptors, and tells it
// through a pipe what happens until all is ready. Its logs, and those of what it runs, are files.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/line_writer.h"
#include "log_file.h"
#include "options.h"
#include "output.h"
#include "shm/paths.h"
#include "supervisor.h"

namespace fluxon::ctl {

// The logs of the processes; none of it in the foreground, where all log to the terminal.
class Logs {
 public:
  Logs() = default;
  // Opens one for each process, in which it is then named, and one for `up` itself.
  static Result<Logs> open(const std::string& folder, std::vector<ProcessSpec>& processes);

  const std::string& folder() const { return folder_; }
  std::string hint() const { return folder_.empty() ? "" : " (logs: " + folder_ + ")"; }
  int own() const { return files_.at("").fd(); }
  void starting(const ProcessSpec&);
  // The last line of the latest life of the process, or empty.
  std::string lastWords(const ProcessSpec&) const;
  // Its latest warning or error, or empty.
  std::string warning(const ProcessSpec&) const;
  void trim() const;

 private:
  std::string folder_;
  std::map<std::string, LogFile> files_;     // by the names of the processes; "": of up itself
  std::map<std::string, uint64_t> begunAt_;  // where the log of the latest life begins
};

// Where the supervisor's words go: to the terminal, or while it detaches through a pipe to the process that was called.
struct Voice {
  std::function<void(const std::string&)> say;  // stdout
  std::function<void(const std::string&)> problem;
  std::function<void()> ready;
  Logs& logs;
};

// A line on stdout, at once.
void sayLine(const std::string& line);

// stdout and stderr of a supervisor: a terminal may be stopped, a pipe full, a disk hang, and the supervisor goes on. One in a process.
class Terminal {
 public:
  // system: there are no threads for it.
  static Result<Terminal> open(Format format);
  void say(const std::string& line) const { out_->add(line + "\n"); }
  void complain(const std::string& message) const { err_->add(complaint(message)); }
  // Waits for what was said, for half a second at most.
  void finish() const;

 private:
  Terminal(LineWriter* out, LineWriter* err) : out_(out), err_(err) {}

  LineWriter* out_;
  LineWriter* err_;
};

// Runs `run` in the background. Blocks until all is ready, or not to be; the exit status.
int detach(const Options& options, const shm::Paths& paths, std::vector<ProcessSpec> processes,
           const std::function<int(std::vector<ProcessSpec>, const Voice&)>& run);

}  // namespace fluxon::ctl
