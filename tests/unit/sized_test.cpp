// Structs of the C interface between programs and libraries of different releases: here one of two members, that was one of one.
#include "client/sized.h"

#include <doctest/doctest.h>

#include <cstdint>

namespace fluxon::client {
namespace {

struct Then {
  size_t size;
  uint64_t first;
};
struct Now {
  size_t size;
  uint64_t first;
  uint64_t second;
};
struct Later {
  size_t size;
  uint64_t first;
  uint64_t second;
  uint64_t third;
};

template <class T>
Error read(const T& from, Now& to) {
  return readSized(reinterpret_cast<const Now*>(&from), sizeof(Then), "options", to);
}
template <class T>
void write(T& to) {
  writeSized(Now{0, 1, 2}, reinterpret_cast<Now*>(&to));
}

TEST_CASE("sized: options that an older program does not have are 0") {
  struct {
    Then options{sizeof(Then), 7};
    uint64_t behind = 99;
  } program;
  Now known;
  CHECK(read(program, known).ok());
  CHECK(known.first == 7);
  CHECK(known.second == 0);
}

TEST_CASE("sized: what a newer program leaves 0 is not asked for, and what it sets is refused") {
  Later options{sizeof(Later), 7, 8, 0};
  Now known;
  CHECK(read(options, known).ok());
  CHECK(known.second == 8);
  options.third = 1;
  const Error error = read(options, known);
  CHECK(error.code == Code::invalidArgument);
  CHECK(error.detail == "options has a member set that this libfluxon does not know: it knows 24 bytes of 32");
}

TEST_CASE("sized: options that are not there are the defaults") {
  Now known{1, 2, 3};
  CHECK(readSized<Now>(nullptr, sizeof(Then), "options", known).ok());
  CHECK(known.first == 0);
}

TEST_CASE("sized: a size that no release has is refused") {
  Now known;
  for (const size_t size : {size_t{0}, sizeof(Then) - 1, kMostBytes + 1, SIZE_MAX}) {
    const Now options{size, 7, 8};
    const Error error = read(options, known);
    CHECK(error.code == Code::invalidArgument);
    CHECK(error.detail.find("options.size is " + std::to_string(size) + ": set it to sizeof(options)") == 0);
  }
}

TEST_CASE("sized: a result is written as far as the program knows it") {
  struct {
    Then result{sizeof(Then), 0};
    uint64_t behind = 99;
  } older;
  write(older);
  CHECK(older.result.first == 1);
  CHECK(older.behind == 99);
  CHECK(older.result.size == sizeof(Then));

  Later newer{sizeof(Later), 9, 9, 9};
  write(newer);
  CHECK(newer.first == 1);
  CHECK(newer.second == 2);
  CHECK(newer.third == 0);
  CHECK(newer.size == sizeof(Later));
}

}  // namespace
}  // namespace fluxon::client
