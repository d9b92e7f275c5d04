// Values from owner to owner over tcp. The owner that wants bytes pulls them: the only verb is `read`, and it names a key and its
// version, never an address. So nobody but the link's own thread writes into this owner's segment for the network.
//
// A value is cut into pieces, which are spread over a few connections; each piece comes with its crc32c, which is always checked.
// As source, the link looks a key up in its own owner's directory as any client of the host does, and holds the slot by a hazard
// word while the kernel reads from it: the owner's scans must include the client file given to start().
//
// All calls come from one control thread and none of them blocks, but start(), which waits for the link's thread to run, and the
// destructor, which waits until it has ended. One thread of the link does all input and output, by io_uring or poll().
//
// Memory of a fetch belongs to the link from fetch() to its Fetched event, which comes once for each fetch, after the last
// operation that could write there has completed. When the destructor returns nothing writes to any of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/ids.h"
#include "base/result.h"
#include "link/link_counters.h"
#include "net/secret.h"
#include "shm/client_format.h"
#include "shm/directory_view.h"

namespace fluxon::link {

struct PeerAddress {
  std::string node;         // empty: any
  Incarnation incarnation;  // 0: any
  std::string address;      // "host:port", "[::1]:port"
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
  bool staged = false;  // the bytes of the export may still be coming: asked for beside all that is there already
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
  std::vector<uint64_t> unpublished;  // ids of exports that no send reads any more
};

class LinkThread;

class TcpLink {
 public:
  struct Settings {
    Endpoint listen;  // disabled: fetches only
    unsigned connectionsPerPeer = 4;
    uint64_t pieceBytes = 1 << 20;  // 4 KiB to 64 MiB
    std::string congestionControl;  // of tcp; empty: the kernel's own choice
    Duration idle = seconds(60);    // connections that carry nothing for so long are closed; they wait no longer for an export
    Duration stall = seconds(10);   // for a handshake, and for a peer to take what is being sent to it
    bool refuseUring = false;       // poll() serves
    std::function<void(const std::string&)> log;  // called by the link's thread: what a peer did wrong, once a connection
  };
  // `own` and `hazards` must outlive the link. Errors: badConfig (settings), system and denied (of the socket).
  static Result<std::unique_ptr<TcpLink>> start(const Settings&, const net::Secret&, const std::string& node, const shm::DirectoryView& own,
                                                shm::ClientFile& hazards);
  ~TcpLink();

  // Where it listens, with the port that the kernel chose; "" if it does not.
  const std::string& address() const { return address_; }
  // Who we are in hellos from now on. Connections that were accepted under an earlier incarnation are closed.
  void setIncarnation(Incarnation);

  // All fetches of one call go to the peer in as few frames as they fit into.
  void fetch(const PeerAddress&, std::vector<Fetch>);
  // Its Fetched comes soon, timedOut if it was not through.
  void cancel(uint64_t id);
  void cancelAll();

  // `bytes` at `data` stay until the unpublished event, and the first `ready` of them do not change. Requests for others wait, until
  // they are `ready` too or the export fails. Ids are not used twice.
  void publish(uint64_t exportId, const char* data, uint64_t bytes, uint64_t ready);
  // More of it is there, in order from the beginning. Nothing if it is not published.
  void advance(uint64_t exportId, uint64_t ready);
  // The rest will not come: who asks, or waits, is answered system. Nothing if it is not published.
  void fail(uint64_t exportId);
  // Nobody finds it from now on, and who waits for it is answered miss; its unpublished event comes when the last send that reads it
  // has ended.
  void unpublish(uint64_t exportId);

  // Readable while events wait; reap() takes them, and makes it unreadable.
  int eventFd() const;
  LinkEvents reap();

  CounterSet<uint64_t> counters() const;
  bool uring() const;

 private:
  TcpLink();
  std::unique_ptr<LinkThread> thread_;
  std::string address_;
};

}  // namespace fluxon::link
