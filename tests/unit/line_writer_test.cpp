// The writer of the log's lines, and what an error says of a limit.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <string>

#include "base/line_writer.h"
#include "base/result.h"

namespace fluxon {
namespace {

// Without a reader at first.
struct Pipe {
  int ends[2];
  Pipe() {
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  // All that comes until the writer has nothing more.
  std::string drain(LineWriter& writer) const {
    std::string text;
    for (bool done = false; !done;) {
      done = writer.drain(milliseconds(20));
      char buffer[65536];
      for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    }
    return text;
  }
};

const auto kNotice = [](uint64_t lines) { return "left out " + std::to_string(lines) + "\n"; };

}  // namespace

TEST_CASE("line writer: lines come out in their order") {
  const Pipe pipe;
  LineWriter& writer = *LineWriter::start(pipe.ends[1], kNotice).value();
  for (int i = 0; i < 100; ++i) writer.add(std::to_string(i) + "\n");
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += std::to_string(i) + "\n";
  CHECK(pipe.drain(writer) == expected);
  CHECK(writer.dropped() == 0);
}

TEST_CASE("line writer: a pipe that nobody reads holds nobody up; what finds no room is counted, and said where it is missing") {
  const Pipe pipe;
  LineWriter& writer = *LineWriter::start(pipe.ends[1], kNotice).value();
  const std::string line = std::string(999, 'x') + "\n";
  const uint64_t lines = 2 * LineWriter::kMostBytes / line.size();
  for (uint64_t i = 0; i < lines; ++i) writer.add(line);
  CHECK_FALSE(writer.drain(milliseconds(10)));
  const uint64_t dropped = writer.dropped();
  CHECK(dropped > lines / 3);
  std::istringstream text(pipe.drain(writer));
  uint64_t whole = 0, said = 0;
  std::string last;
  for (std::string each; std::getline(text, each); last = each) {
    whole += each + "\n" == line;
    if (each.starts_with("left out ")) said += std::stoull(each.substr(9));
  }
  CHECK(whole == lines - dropped);
  CHECK(said == dropped);  // at once, or in parts, where the writer has made room between two of them
  CHECK(last.starts_with("left out "));
  writer.add("next\n");
  CHECK(pipe.drain(writer) == "next\n");
}

TEST_CASE("line writer: lines that the descriptor refuses are counted, and said before the next one that it takes") {
  const Pipe pipe;
  const int fd = ::dup(pipe.ends[0]);  // for reading: EBADF
  LineWriter& writer = *LineWriter::start(fd, kNotice).value();
  for (int i = 0; i < 3; ++i) writer.add("lost\n");
  CHECK(writer.drain(seconds(10)));
  CHECK(writer.dropped() == 3);
  REQUIRE(::dup2(pipe.ends[1], fd) == fd);
  writer.add("next\n");
  CHECK(pipe.drain(writer) == "left out 3\nnext\n");
  CHECK(writer.dropped() == 3);
}

TEST_CASE("a file too large for RLIMIT_FSIZE: the error names the limit") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(systemError("write x", EFBIG).detail.starts_with("write x: File too large"));
  const rlimit less{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &less) == 0);
  CHECK(systemError("write x", EFBIG).detail ==
        "write x: File too large (RLIMIT_FSIZE is 4096 bytes: ulimit -f, or LimitFSIZE= of the unit)");
  CHECK(systemError("write x", EIO).detail == "write x: Input/output error");
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
}

}  // namespace fluxon
