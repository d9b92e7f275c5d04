// What an owner and its ssdd say to each other, as plain values: the logic of both sees these. How they lie in shared memory:
// ssdd_format.h; channel.h converts.
//
// The owner represents its ssdd: nobody else reads from the SSD, and only the owner reports about it to the master. Messages of one
// direction arrive in the order in which they were sent, each once, until the channel ends with one of the two processes.
//
// Life of a persist (id: the owner's, not used again while it is open)
//
//   owner: persist ──► ssdd: waiting, writing ──► persisted(ok) ──► the master is asked ──► decided(ok): the entry can be read
//                              │                                                     └──► decided(other): the entry is dead
//                              └──► persisted(code): there is no entry, the id is over
//   The owner leaves the bytes in the segment unchanged until `persisted`, or until it sends `forget`. The ring does not write over the
//   entry before `decided`.
//   stalled: the device hangs. The version is dead, so the persist is over and the owner may change the bytes; `persisted`, which is not
//   ok then, may come late or never.
//
// Life of a load
//
//   owner: load ──► ssdd: reading ──► progress(bytes) ... ──► loaded(code)
//   From `load` to `loaded`, whatever its code, ssdd may write the extent. The bytes that `progress` counts, from the extent's beginning
//   on, are there and may be sent on; ssdd checks the value (crc32c) before it counts the last bytes or sends `loaded(ok)`.
//   stalled: the device hangs. Whoever waits for the value looks elsewhere; `loaded` may come late or never.
//
// Invariants
//   1. After `done` of an invalidate, no load finds a version of that key below its put_id, and no list names one.
//   2. A list names exactly the entries that were decided(ok) before it and have not ended: not evicted, invalidated or dropped. One
//      that ends during the list may have been named before; its `evicted` comes after that.
//   3. When the owner ends, every undecided entry is dead: ssdd does not know whether the master has taken it.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace fluxon::ssd {

enum class MessageKind : uint16_t {
  // owner to ssdd
  persist = 1,  // id, key, putId, offset, bytes -> persisted
  decided,      // id, code (of the master about the persist); nothing if the persist is over
  load,         // id, key, putId, offset (of the target in the segment), bytes -> progress, loaded
  invalidate,   // id, key, putId: versions below it end -> done; id 0: no answer is wanted
  drop,         // key, putId: this very version ends
  list,         // id -> listed for each entry, done. A list that is under way ends without the rest: done(unavailable)
  forget,       // id: persists and loads end as soon as they can (with their answers), what is undecided is dead -> done after them
  scrub,        // id: reads and checks every entry -> progress (bytes checked), done (bytes: entries checked, offset: damaged ones);
                // done(inFlight): another one is under way
  // ssdd to owner
  persisted = 32,  // id, code
  progress,        // id, bytes
  loaded,          // id, code: miss: there is no such entry; corrupt, system: there is none any more
  evicted,         // key, putId: a decided entry has ended by itself: overwritten, or damaged
  listed,          // id, key, putId, bytes
  done,            // id
  stalled,         // id: of a persist or a load
  alive,           // each half second while a persist or a load is open
};

struct Message {
  MessageKind kind{};
  uint64_t id = 0;
  std::string key{};
  PutId putId{};
  uint64_t offset = 0;  // in the owner's segment
  uint64_t bytes = 0;   // payload
  Code code = Code::ok;
};

}  // namespace fluxon::ssd
