// NAME_fuzz --seeds FOLDER writes the seeds there, each of which must be accepted; everything else is libFuzzer's.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "fuzz.h"

namespace fluxon::fuzz {
namespace {

int writeSeeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : seeds()) {
    const std::string name = folder + "/" + std::to_string(number++);
    if (!run(seed)) {
      std::fprintf(stderr, "seed %s is refused\n", name.c_str());
      return 1;
    }
    std::ofstream file(name, std::ios::binary);
    if (!(file << seed << std::flush)) {
      std::fprintf(stderr, "cannot write %s\n", name.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace fluxon::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::string((*argv)[1]) == "--seeds") std::exit(fluxon::fuzz::writeSeeds((*argv)[2]));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fluxon::fuzz::run({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
