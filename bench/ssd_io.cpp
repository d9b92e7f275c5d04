// ssd_io --file NAME --engine io_uring|registered|iovec|threads --direction read|write --bytes SIZE --depth N --seconds S
//
// One round of the SSD tier's file IO: the file, which exists and has all its blocks, is read or written from its beginning to its
// end and anew, SIZE bytes an operation, with O_DIRECT and N operations in flight, for S seconds. `io_uring` takes the file from the
// engine's table and plain memory, `registered` registered memory as well, `iovec` lists of one part. The one line of the output:
// GB/s, CPU microseconds and system calls an operation. scripts/bench ssd-io runs rounds of it beside fio.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

#include "measure.h"
#include "storage/file_engine.h"

namespace fluxon::bench {
namespace {

using ssdd::Direction;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "ssd_io: %s\n", what.c_str());
  std::exit(70);
}

double cpuSeconds() {
  rusage use;
  ::getrusage(RUSAGE_SELF, &use);
  const int64_t us = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1'000'000 + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
  return static_cast<double>(us) * 1e-6;
}

int run(int argc, char** argv) {
  const std::string file = argument(argc, argv, "--file", ""), kind = argument(argc, argv, "--engine", "io_uring");
  const Direction direction = argument(argc, argv, "--direction", "read") == "read" ? Direction::read : Direction::write;
  const size_t bytes = std::stoull(argument(argc, argv, "--bytes", "1048576"));
  const unsigned depth = static_cast<unsigned>(std::stoul(argument(argc, argv, "--depth", "4")));
  const double seconds = std::stod(argument(argc, argv, "--seconds", "2"));

  const int fd = ::open(file.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  if (fd < 0) fail(file + ": " + std::strerror(errno));
  const auto blocks = static_cast<uint64_t>(::lseek(fd, 0, SEEK_END)) / bytes;
  if (blocks < depth) fail(file + " is too small");
  void* const mapped = ::mmap(nullptr, bytes * depth, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) fail("no memory");
  char* const memory = static_cast<char*>(mapped);
  for (size_t i = 0; i < bytes * depth; ++i) memory[i] = static_cast<char>(i * 2654435761 >> 16);

  std::string why;
  const auto engine = kind == "threads" ? ssdd::makePsyncEngine({.threads = depth}).value() : ssdd::makeUringEngine({}, why);
  if (!engine) fail("io_uring: " + why);
  if (kind == "registered") {
    const iovec all{memory, bytes * depth};
    if (const Error error = engine->addMemory(all); !error.ok()) fail(error.message());
  }
  const ssdd::FileRef there = engine->addFile(fd);

  uint64_t block = 0, done = 0;
  const auto submit = [&](uint64_t slot) {
    const iovec buffer{memory + slot * bytes, bytes};
    ssdd::Request request{.direction = direction, .file = there, .offset = block++ % blocks * bytes, .tag = slot};
    if (kind == "iovec") {
      request.parts = {&buffer, 1};
    } else {
      request.buffer = buffer;
    }
    if (!engine->submit(request)) fail("full");
  };
  const double cpu = cpuSeconds();
  const int64_t from = nowNs(), until = from + static_cast<int64_t>(seconds * 1e9);
  for (uint64_t slot = 0; slot < depth; ++slot) submit(slot);
  std::vector<ssdd::Completion> ended;
  while (engine->pending() > 0) {
    ended.clear();
    engine->wait(1, Time::never(), ended);
    const bool more = nowNs() < until;
    for (const ssdd::Completion& each : ended) {
      if (each.error != 0) fail(std::strerror(each.error));
      ++done;
      if (more) submit(each.tag);
    }
  }
  const double took = static_cast<double>(nowNs() - from), operations = static_cast<double>(done);
  std::printf("%.4f %.2f %.3f\n", operations * static_cast<double>(bytes) / took, (cpuSeconds() - cpu) * 1e6 / operations,
              static_cast<double>(engine->counters().systemCalls) / operations);
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  return fluxon::bench::oneSentence("ssd_io", [&] { return fluxon::bench::run(argc, argv); });
}
