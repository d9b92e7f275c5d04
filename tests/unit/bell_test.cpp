// base: bells.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bell.h"

namespace fluxon {
namespace {

struct Made {
  explicit Made(int made) : fd(made) { REQUIRE(fd >= 0); }
  ~Made() { ::close(fd); }
  bool rings() const {
    pollfd waiting{fd, POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  const int fd;
};

TEST_CASE("bell: rung often before it is cleared, it rings once") {
  const Made bell(bell::make());
  CHECK_FALSE(bell.rings());
  CHECK_FALSE(bell::clear(bell.fd));
  bell::ring(bell.fd);
  bell::ring(bell.fd);
  CHECK(bell.rings());
  CHECK(bell::clear(bell.fd));
  CHECK_FALSE(bell.rings());
  CHECK_FALSE(bell::clear(bell.fd));
}

TEST_CASE("bell: one whose counter is full keeps nobody waiting and rings on") {
  const Made bell(bell::make());
  REQUIRE(::eventfd_write(bell.fd, UINT64_MAX - 1) == 0);
  bell::ring(bell.fd);
  CHECK(bell.rings());
  CHECK(bell::clear(bell.fd));
  CHECK_FALSE(bell.rings());
}

TEST_CASE("bell: what is no eventfd takes the ring and never rings") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  const Made reads(ends[0]), writes(ends[1]);
  bell::ring(reads.fd);
  CHECK_FALSE(bell::clear(reads.fd));
  CHECK_FALSE(bell::clear(writes.fd));
}

}  // namespace
}  // namespace fluxon
