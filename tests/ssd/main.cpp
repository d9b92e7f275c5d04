// Exit status: doctest's; 77: skipped aloud, there is no file system to be had.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "loop_device.h"
#include "scratch.h"

namespace fluxon::ssdd {
std::string scratchFolder;
}

int main(int argc, char** argv) {
  using namespace fluxon::ssd;
  using namespace fluxon::ssdd;
  if (const std::string why = whyNoLoopDevices(); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 77;
  }
  const TemporaryFolder folder;
  if (const std::string why = mountFileSystem(folder.path, kScratchBytes); !why.empty()) {
    std::printf("SKIPPED: %s\n", why.c_str());
    return 77;
  }
  scratchFolder = folder.path + "/mounted";
  return doctest::Context(argc, argv).run();
}
