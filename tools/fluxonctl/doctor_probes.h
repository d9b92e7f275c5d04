// What a host is like, for fluxonctl doctor: looked at with the rights and the limits of this process. Nothing is changed; an
// io_uring and the sockets that show whether a port is free are closed again at once. What cannot be read is left empty.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "doctor_checks.h"
#include "shm/paths.h"

namespace fluxon::ctl {

ShmFacts probeShm(const shm::Paths&, const Config::Owner&, const std::vector<std::string>& nodes);
MemoryFacts probeMemory(const ShmFacts&);
LimitFacts probeLimits(const Config::Owner&);
SwapFacts probeSwap(const ShmFacts&);
MemlockFacts probeMemlock(const Config::Owner&);
NofileFacts probeNofile(const Config::Owner&);
HugePagesFacts probeHugePages(const ShmFacts&);
IoUringFacts probeIoUring();
std::vector<SsdFolderFacts> probeSsd(const shm::Paths&, const Config::Owner&, const std::vector<std::string>& nodes);
// Addresses with a fixed port, each once, of the master and of these nodes.
std::vector<PortFacts> probePorts(const shm::Paths&, const Config&, const std::vector<std::string>& nodes);

struct Leftovers {
  std::vector<LeftoverFacts> found;
  std::vector<std::string> unseen;
  MappedFacts mapped;
};
// Below this root, and below the default roots of other users if this one is a default root too.
Leftovers probeLeftovers(const shm::Paths&, const std::vector<std::string>& nodes);
// Takes 10 ms.
ClockFacts probeClocks();
std::vector<RailFacts> probeRails();
std::string kernelRelease();

}  // namespace fluxon::ctl
