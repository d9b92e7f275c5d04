// One fetch under way: it is cut into pieces, which connections bring each on its own.
//
// Life of a transfer
//
//   running ── all pieces ended well ─────────────────────────────► finished: Fetched
//      │ a piece failed, deadline, cancel                              ▲
//      └────────► failing: queued and asked pieces are dropped, ───────┘
//                 the arriving one is waited for
//
// Invariant: `open` counts the pieces that are queued, asked or arriving. The memory belongs to the link while it is above 0.
// The link's thread.
#pragma once

#include <cstdint>

#include "link/link.h"

namespace fluxon::link::tcp {

struct Peer;  // puller.h

struct Transfer {
  Fetch fetch;
  Peer* peer = nullptr;
  uint64_t open = 0;
  Error error;  // not ok: failing
};

struct Piece {
  Transfer* transfer = nullptr;  // null: dropped
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t tag = 0;
  Time asked{};
};

}  // namespace fluxon::link::tcp
