// Link: brings values from other owners into this one's segment, and serves this owner's to them. The owner that wants bytes pulls them:
// it names a key with its version, or an export. So only an owner's own links write into its segment for others.
//
//   target   fetch() ──► under way ── all bytes are there, checked ──────────────────────────────► Fetched: ok
//                            │ the source refuses or dies, the deadline, cancel()                    ▲
//                            └────────► failing: the link starts nothing; what is in flight ends ────┘ an error
//
//   source   publish() ──► published ── unpublish() ──► withdrawn: no request finds it ── its last reader has ended ──► unpublished
//                            ▲    │
//                            └────┘ advance(), fail()
//
// Who owns the bytes
//   1. The memory of a fetch belongs to the link from fetch() to its Fetched. The link reports exactly one Fetched for each fetch, after
//      the last operation that could write there has completed, also after cancel() and when the source has died. A link whose source
//      writes into the target's memory first tears down, at the target, the connection that lets it: neither the death of the source nor
//      a clock proves that no write is left.
//   2. The bytes of an export belong to the link, for reading, from publish() to `unpublished`, which it reports once for each
//      unpublish(). A value of the directory is held by a hazard word of the link (value_source.h), which the owner's scans must see.
//   3. The link at the source ends a hold once no operation of its own reads the bytes: it has completed, cancelled or not. When a target
//      dies the link tears down the connection to it first. A target never ends a hold.
//   4. After the destructor the link reads and writes none of these bytes, and reports nothing.
//
// Cancel and death
//   5. cancel() hastens the end: a fetch that is not through ends with timedOut, as at its deadline.
//   6. Fetches from a peer that cannot be reached, dies, or has another incarnation than the one asked for end with unavailable. The link
//      may connect anew for later fetches; it never turns to another peer, which is for the master to name.
//   7. setIncarnation() ends what peers have asked of an earlier incarnation.
//
// One control thread makes all calls. None of them blocks, but the function that starts a link, and the destructor.
//
// How links name themselves. An owner registers one text, `link`: one entry for each of its links that listens, separated by blanks. The
// entry of link/tcp is ADDRESS:PORT. Any other is NAME=ADDRESS: the name of the link, and what only this link understands, without
// blanks. Each link looks for its own entry in what a peer has registered; without one the peer cannot be reached by this link. So an
// owner that does not know a link uses another one, and a new link needs no change of the protocol.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "link/link_counters.h"

namespace fluxon::link {

struct PeerAddress {
  std::string node;         // empty: any
  Incarnation incarnation;  // 0: any
  std::string address;      // its entry for this link
};

struct Fetch {
  uint64_t id;  // of the caller, not in use by another fetch
  std::string key;
  uint64_t keyHash;
  PutId putId;
  uint64_t exportId;  // 0: the value of the key
  char* to;
  uint64_t bytes;  // length of the value
  Time deadline;
  bool staged = false;        // the bytes of the export may still be coming: asked for beside all that is there already
  uint64_t exportOffset = 0;  // of the export in the source's segment: for a link that maps that segment
};

// ok: all bytes are there and checked. miss: the peer has no such version or export of that length. corrupt: a checksum was wrong.
// system: the bytes of the export will not come. timedOut: the deadline or a cancel. unavailable: no connection, or it was lost; the
// peer may not serve now. Else what the peer said.
struct Fetched {
  uint64_t id;
  Error error;
};

struct LinkEvents {
  std::vector<Fetched> fetched;
  std::vector<uint64_t> unpublished;  // ids of exports that nobody reads through this link any more
};

class Link {
 public:
  virtual ~Link() = default;

  // What other owners need to reach this one, "" if they cannot: its entry without NAME=.
  virtual std::string address() const = 0;
  // Who this owner is from now on.
  virtual void setIncarnation(Incarnation) = 0;

  // Fetches of one call go to the peer together.
  virtual void fetch(const PeerAddress&, std::vector<Fetch>) = 0;
  virtual void cancel(uint64_t id) = 0;
  virtual void cancelAll() = 0;

  // The first `ready` bytes at `data` are there and do not change. Who asks for others waits until they are ready too, or the export fails.
  // Ids are not used twice.
  virtual void publish(uint64_t exportId, const char* data, uint64_t bytes, uint64_t ready) = 0;
  // More of it is there, in order from the beginning. Nothing if it is not published.
  virtual void advance(uint64_t exportId, uint64_t ready) = 0;
  // The rest will not come: who asks, or waits, is answered system. Nothing if it is not published.
  virtual void fail(uint64_t exportId) = 0;
  // No request finds it from now on, and who waits for it is answered miss. `unpublished` follows in any case, also for an id that was
  // not published here.
  virtual void unpublish(uint64_t exportId) = 0;

  // Readable while events wait; reap() takes them, and makes it unreadable.
  virtual int eventFd() const = 0;
  virtual LinkEvents reap() = 0;

  // Of connections to other hosts; a link that has none returns zeros.
  virtual LinkCounters counters() const = 0;
  // What moves the bytes, as a label of the metrics; "" where there is no choice.
  virtual std::string engine() const = 0;
};

// The entry of a link in what an owner has registered, without NAME=; "" if there is none. `name` "": of link/tcp.
std::string addressOf(std::string_view registered, std::string_view name);
std::string entryOf(std::string_view name, std::string_view address);

}  // namespace fluxon::link
