// fluxon-sim: runs simulated clusters, one for each seed, and says which rule a run has broken.
//
//   fluxon-sim --seeds 1:300         these seeds
//   fluxon-sim --seed 7 [--log]      one seed, exactly as it ran before; with everything that happened
//   fluxon-sim --minutes 10          seeds that nobody has tried, for so long
//   fluxon-sim --lose-each 7         a run without other faults, once for each of its messages, which is lost with its connection
// --jobs N runs on N cores. --marks N needs each fault branch of the protocol to have been reached at least N times. A seed that
// finds something is run once more with its log, of which the last lines are printed, and the exit status is 1.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/mark.h"
#include "world.h"

extern fluxon::Mark __start_fluxon_marks[], __stop_fluxon_marks[];

namespace fluxon::sim {
namespace {

constexpr size_t kLinesShown = 120;
constexpr size_t kMostMarks = 512;
constexpr unsigned kMostJobs = 64;

struct Options {
  std::string seeds;
  uint64_t seed = 0, loseEach = 0, marks = 0;
  double minutes = 0;
  unsigned jobs = 1;
  bool log = false, twice = false;
};

// What a worker has done, in memory that all share.
struct Report {
  uint64_t runs = 0, running = 0, fewestOperations = UINT64_MAX;
  double simulatedMinutes = 0;
  Tally tally;
  uint64_t marks[kMostMarks] = {};
};

size_t markCount() { return static_cast<size_t>(__stop_fluxon_marks - __start_fluxon_marks); }

volatile uint64_t runningNow = 0;
void aborted(int) {
  char text[64];
  const int bytes = std::snprintf(text, sizeof text, "in seed %llu\n", static_cast<unsigned long long>(runningNow));
  [[maybe_unused]] const ssize_t n = ::write(2, text, static_cast<size_t>(bytes));
}

// True: nothing was found.
bool runOne(World::Options options, Report& report, bool wholeLog, bool twice = false) {
  runningNow = report.running = options.seed;
  options.log = wholeLog;
  World world(options);
  std::string finding;
  try {
    world.run();
  } catch (const Finding& what) {
    finding = what.what();
  }
  for (const std::string& line : world.log()) std::printf("%s\n", line.c_str());
  if (finding.empty() && twice) {
    World again(options);
    again.run();
    if (again.digest() != world.digest()) finding = "the same seed does not run as it did before";
  }
  if (finding.empty()) {
    ++report.runs;
    report.simulatedMinutes += static_cast<double>(world.simulated().ms()) / 60'000;
    report.fewestOperations = std::min(report.fewestOperations, world.tally.operations);
    report.tally.add(world.tally);
    return true;
  }
  // First of all: a broken world may end this process when it runs again.
  std::printf("FOUND in seed %llu%s: %s\n", static_cast<unsigned long long>(options.seed),
              options.loseMessage ? (", message " + std::to_string(options.loseMessage) + " lost").c_str() : "", finding.c_str());
  std::fflush(stdout);
  if (!wholeLog) {
    options.log = true;
    World again(options);
    try {
      again.run();
    } catch (const Finding&) {
    }
    const std::vector<std::string>& lines = again.log();
    for (size_t i = lines.size() > kLinesShown ? lines.size() - kLinesShown : 0; i < lines.size(); ++i)
      std::printf("%s\n", lines[i].c_str());
    std::fflush(stdout);
  }
  return false;
}

// Every `jobs`-th run from the `job`-th on.
bool work(const Options& options, unsigned job, Report& report) {
  using Clock = std::chrono::steady_clock;
  const auto length = std::chrono::duration<double, std::ratio<60>>(options.minutes);
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(length);
  if (options.loseEach != 0) {
    World::Options base{.seed = options.loseEach, .faultless = true, .brief = true};
    World whole(base);
    whole.run();
    for (uint64_t message = 1 + job; message <= whole.losable; message += options.jobs) {
      if (!runOne({.seed = options.loseEach, .loseMessage = message, .brief = true}, report, false)) return false;
    }
    return true;
  }
  if (options.minutes > 0) {
    std::random_device device;
    const uint64_t first = (uint64_t{device()} << 16) + (uint64_t{1} << 48);
    for (uint64_t seed = first + job; Clock::now() < end; seed += options.jobs) {
      if (!runOne({.seed = seed}, report, false)) return false;
    }
    return true;
  }
  uint64_t first = options.seed, last = options.seed;
  if (!options.seeds.empty()) std::sscanf(options.seeds.c_str(), "%lu:%lu", &first, &last);
  for (uint64_t seed = first + job; seed <= last; seed += options.jobs) {
    if (!runOne({.seed = seed}, report, options.log, options.twice)) return false;
  }
  return true;
}

int run(const Options& options) {
  if (markCount() > kMostMarks) return std::fprintf(stderr, "fluxon-sim: %zu marks\n", markCount()), 70;
  void* const shared = ::mmap(nullptr, sizeof(Report) * kMostJobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return std::perror("fluxon-sim: mmap"), 71;
  Report* const reports = static_cast<Report*>(shared);
  const auto began = std::chrono::steady_clock::now();
  std::vector<pid_t> workers;
  for (unsigned job = 0; job < options.jobs; ++job) {
    new (&reports[job]) Report;
    const pid_t pid = ::fork();
    if (pid < 0) return std::perror("fluxon-sim: fork"), 71;
    if (pid == 0) {
      std::signal(SIGABRT, aborted);
      const bool clean = work(options, job, reports[job]);
      for (size_t i = 0; i < markCount(); ++i) reports[job].marks[i] = __start_fluxon_marks[i].reached;
      std::_Exit((std::fflush(stdout), clean ? 0 : 1));
    }
    workers.push_back(pid);
  }
  bool clean = true;
  for (const pid_t pid : workers) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) std::printf("\nFOUND: a run ended by signal %d\n", WTERMSIG(status));
    clean = clean && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  Report sum;
  for (unsigned job = 0; job < options.jobs; ++job) {
    sum.runs += reports[job].runs;
    sum.simulatedMinutes += reports[job].simulatedMinutes;
    sum.fewestOperations = std::min(sum.fewestOperations, reports[job].fewestOperations);
    sum.tally.add(reports[job].tally);
    for (size_t i = 0; i < markCount(); ++i) sum.marks[i] += reports[job].marks[i];
  }
  std::printf("%llu runs, %.0f simulated minutes in %.1f s on %u cores: %.0f a minute and core; at least %llu operations a run\n",
              static_cast<unsigned long long>(sum.runs), sum.simulatedMinutes, seconds, options.jobs,
              sum.simulatedMinutes / (seconds / 60) / options.jobs, static_cast<unsigned long long>(sum.runs ? sum.fewestOperations : 0));
#define FLUXON_SHOW(name) std::printf("%s %llu, ", #name, static_cast<unsigned long long>(sum.tally.name));
  FLUXON_TALLY(FLUXON_SHOW)
#undef FLUXON_SHOW
  const auto show = [](const char* name, const char*, uint64_t value) {
    std::printf("%s %llu, ", name, static_cast<unsigned long long>(value));
  };
  sum.tally.masters.each(show);
  sum.tally.owners.each(show);
  sum.tally.ssdds.each(show);
  std::printf("\n");
  for (size_t i = 0; i < markCount() && options.marks > 0; ++i) {
    std::printf("mark %-60s %llu\n", __start_fluxon_marks[i].name, static_cast<unsigned long long>(sum.marks[i]));
    if (sum.marks[i] >= options.marks) continue;
    std::printf("NOT REACHED %s times: %s\n", std::to_string(options.marks).c_str(), __start_fluxon_marks[i].name);
    clean = false;
  }
  return clean ? 0 : 1;
}

}  // namespace
}  // namespace fluxon::sim

int main(int argc, char** argv) {
  fluxon::sim::Options options;
  CLI::App app{"Runs simulated clusters, one for each seed, and says which rule a run has broken."};
  auto* seed = app.add_option("--seed", options.seed, "one seed");
  auto* seeds = app.add_option("--seeds", options.seeds, "FIRST:LAST")
                    ->check(CLI::Validator(
                        [](const std::string& text) {
                          unsigned long first = 0, last = 0;
                          int used = 0;
                          const bool two =
                              std::sscanf(text.c_str(), "%lu:%lu%n", &first, &last, &used) == 2 && text.size() == static_cast<size_t>(used);
                          return two && first <= last ? std::string() : "'" + text + "' (accepted: FIRST:LAST)";
                        },
                        "FIRST:LAST"));
  auto* minutes = app.add_option("--minutes", options.minutes, "new seeds, for so many minutes")->check(CLI::PositiveNumber);
  auto* loseEach = app.add_option("--lose-each", options.loseEach, "the run of this seed, once for each message, which is lost");
  app.add_flag("--log", options.log, "all that happens in the run of --seed")->needs(seed);
  app.add_flag("--twice", options.twice, "run each seed twice: both must go the same way");
  app.add_option("--jobs", options.jobs, "cores")->check(CLI::Range(1u, fluxon::sim::kMostJobs));
  app.add_option("--marks", options.marks, "each fault branch must be reached so often");
  app.require_option(1, 0);
  for (auto* a : {seed, seeds, minutes, loseEach}) {
    for (auto* b : {seed, seeds, minutes, loseEach}) {
      if (a != b) a->excludes(b);
    }
  }
  CLI11_PARSE(app, argc, argv);
  if (!*seed && !*seeds && !*minutes && !*loseEach) {
    std::fprintf(stderr, "fluxon-sim: name seeds: --seed, --seeds, --minutes or --lose-each\n");
    return 64;
  }
  return fluxon::sim::run(options);
}
