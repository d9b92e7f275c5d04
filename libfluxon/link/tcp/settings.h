// What a tcp link is started with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/endpoint.h"

namespace fluxon::link::tcp {

struct Settings {
  Endpoint listen;        // disabled: the link fetches only
  std::string advertise;  // ADDRESS or ADDRESS:PORT that peers are told instead of where it listens; empty: none
  unsigned connectionsPerPeer = 4;
  uint64_t pieceBytes = 1 << 20;                // 4 KiB to 64 MiB
  std::string congestionControl;                // of tcp; empty: the kernel's own choice
  Duration idle = seconds(60);                  // connections that carry nothing for so long are closed; they wait no longer for an export
  Duration stall = seconds(10);                 // for a handshake, and for a peer to take what is being sent to it
  bool refuseUring = false;                     // poll() serves
  std::function<void(const std::string&)> log;  // called by the link's thread: what a peer did wrong, once a connection
};

}  // namespace fluxon::link::tcp
