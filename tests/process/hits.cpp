// hits ROOT CLUSTER NODE KEY COUNT: gets one key COUNT times between two marks, for strace.
#include <fluxon/fluxon.hpp>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {
void mark(std::string_view text) {
  if (::write(2, text.data(), text.size()) < 0) std::abort();
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 64;
  fluxon::ConnectOptions options;
  options.shmRoot = argv[1];
  options.cluster = argv[2];
  options.node = argv[3];
  fluxon::Client client(options);
  const long count = std::atol(argv[5]);
  client.get(argv[4]);
  long hits = 0;
  mark("begin hits\n");
  for (long i = 0; i < count; ++i) hits += client.get(argv[4]).has_value();
  mark("end hits\n");
  std::printf("%ld hits\n", hits);
}
