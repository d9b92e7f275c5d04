# The protocol between owners and their master, and between operators and the master.
#
# An owner and its master exchange messages. `submit` carries requests; answers that are ready come back in its result,
# later ones and orders in `deliver`. Every request has an id, counted from 1 within one incarnation of the owner; the master
# does each id once and answers a repetition with the same reply, within one term. `lowestUnanswered` lets it forget; a
# request below it is refused. Orders have ids of the master's and may be repeated; carrying one out twice is harmless.
# Messages of one direction may overtake each other (a reply in a result, an order in a `deliver`): neither side relies on
# their order, only on put_ids.
@0xb6f1d0f0a5c3e871;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fluxon::schema");

struct Version {
  key @0 :Data;
  putId @1 :UInt64;     # term << 44 | sequence
  offset @2 :UInt64;    # of the extent in the owner's segment, bytes
  bytes @3 :UInt64;     # payload
  lease @4 :UInt64;     # key lease, 0: none
  ssd @5 :Bool;         # inventory: it lies on the owner's SSD, which calls it `offset`
}

struct Peer {
  node @0 :Text;
  hostId @1 :Text;
  link @2 :Text;        # address of its tcp link, empty: it has none
  incarnation @3 :UInt64;
}

struct Request {
  # Which fields a kind uses stands at RequestKind in libfluxon/rpc/messages.h.
  id @0 :UInt64;
  kind @1 :UInt16;
  flags @2 :UInt32;
  key @3 :Data;
  after @4 :Data;
  bytes @5 :UInt64;
  offset @6 :UInt64;
  put @7 :UInt64;
  lease @8 :UInt64;
  timeLeftMs @9 :UInt64;
  ttlMs @10 :UInt64;
  count @11 :UInt64;
  command @12 :UInt64;
  offsets @13 :List(UInt64);
  items @14 :List(Version);
  results @15 :List(UInt8);   # 0 ok, 1 busy, 2 gone
  code @16 :UInt16;           # fluxon/errors.def
}

struct ListedKey {
  key @0 :Data;
  bytes @1 :UInt64;
  putId @2 :UInt64;
}

struct Reply {
  id @0 :UInt64;
  code @1 :UInt16;            # fluxon/errors.def
  detail @2 :Text;
  putId @3 :UInt64;
  published @4 :Bool;         # false: overwritten before it was done, which is a success
  offset @5 :UInt64;
  bytes @6 :UInt64;
  count @7 :UInt64;
  lease @8 :UInt64;
  peer @9 :Peer;
  nodes @10 :List(Text);
  offsets @11 :List(UInt64);
  entries @12 :List(ListedKey);
  fetch @13 :Bool;
  ssd @14 :Bool;              # with fetch: from the owner's own SSD; without: it lies on the SSD of `peer`
  exportId @15 :UInt64;       # fetch what `peer` has exported under it, 0: its readable value
  sourceOffset @16 :UInt64;   # of what is exported, in the peer's segment
}

struct MasterMessage {
  union {
    reply @0 :Reply;
    invalidate @1 :Order;     # drop every replica below putId; answered when no reader can begin on one any more
    reclaim @2 :Order;        # drop exactly this version if nobody reads it; answered with a result per item
    replicate @3 :Order;      # bring this version from `peer` into the extent of the item; answered by getDone
    leave @4 :Void;           # everything of this owner is elsewhere: end, and leave nothing behind
    shrink @5 :Void;          # space is short here: what the owner has ahead of puts goes back by `release`; said again while it is
    stage @6 :Order;          # bring the item from your SSD to its offset, and export it meanwhile under `exportId`; answered by staged
    unstage @7 :Order;        # end that export; answered by unstaged, after which the extent is free; never before `staged` is heard
  }
}

struct Order {
  command @0 :UInt64;
  items @1 :List(Version);
  peer @2 :Peer;
  exportId @3 :UInt64;        # the value is not readable at the peer: it has exported it under this id
  sourceOffset @4 :UInt64;    # of what is exported, in the peer's segment
  timeLeftMs @5 :UInt64;      # for the copy
}

struct Extent {
  offset @0 :UInt64;
  length @1 :UInt64;
}

struct Registration {
  node @0 :Text;
  hostId @1 :Text;            # boot id, and the cluster's folder in shared memory: equal means the same host
  incarnation @2 :UInt64;
  pid @3 :UInt64;
  segmentBytes @4 :UInt64;
  maxKeys @5 :UInt64;
  http @6 :Text;              # address of /metrics and /health, empty when off
  occupied @7 :List(Extent);  # extents without a readable value: held, or being written by clients of this owner
  adopts @8 :UInt64;          # incarnation in whose life the values that it has were published, 0: it has none
  link @9 :Text;              # address of the tcp link, empty when off
  label @10 :Text;            # sub-cluster
  ssdLife @11 :UInt64;        # of what is on this owner's SSD, where values put here go as well; 0: it has none
  sentNs @12 :UInt64;         # CLOCK_BOOTTIME of its host: an earlier one that arrives late, by a connection that was given up, is refused
  values @14 :UInt64;         # in memory, that it would list
  ends @13 :List(UInt64);     # incarnations of the node that serve no more: who registers has their directory, or was they
}

interface Master {
  # The bootstrap interface.

  hello @0 () -> (clusterId :Text, cluster :Text, term :UInt64, master :UInt64);
  # An owner that meets another term, or was fenced, or has been started again, registers under a new incarnation.

  register @1 (registration :Registration, owner :Owner)
      -> (code :UInt16, detail :Text, leaseMs :UInt64, session :Session, inventory :Bool);
  # Joins the cluster, or joins again with the same incarnation after a lost connection. With `inventory` the owner lists its
  # values first, in pages (requests of kind inventory), several at once, and serves when all are answered; each answer names the
  # values that must go. Without it every value must go. The serving lease of the owner runs from before it sent this call or
  # its last answered heartbeat. `unavailable`: the node is alive under an incarnation that `ends` does not name.

  operator @2 () -> (operator :Operator);
}

interface Session {
  submit @0 (requests :List(Request), lowestUnanswered :UInt64, stragglers :List(UInt64)) -> (messages :List(MasterMessage));
  # All requests below lowestUnanswered have been answered, but for the stragglers, of which the master minds 1024.
  leave @1 (keeps :Bool);
  # The owner serves nothing any more. `keeps`: its values stay where they are for its next life; else its replicas and its
  # membership end.
}

interface Owner {
  deliver @0 (messages :List(MasterMessage));
}

struct Member {
  node @0 :Text;
  state @1 :Text;             # reporting, joined, draining, silent (without a connection), left, fenced
  incarnation @2 :UInt64;
  pid @3 :UInt64;
  http @4 :Text;
  leaseLeftMs @5 :Int64;
  segmentBytes @6 :UInt64;
  freeBytes @7 :UInt64;
  largestFree @8 :UInt64;
  routedBytes @9 :UInt64;     # of readable replicas, key leases not counted
  leasedBytes @10 :UInt64;
  reservedBytes @11 :UInt64;  # handed to the owner ahead of puts
  inFlightBytes @12 :UInt64;  # being put
  retiredBytes @13 :UInt64;      # of replicas without a route that are still read or not yet released
  replicas @14 :UInt64;
  waitingPuts @15 :UInt64;    # and gets that wait for space
  link @16 :Text;             # address of the tcp link, empty when off
  label @17 :Text;            # sub-cluster
  ssdLife @18 :UInt64;        # of what is on its SSD, 0: it has none
  ssdReplicas @19 :UInt64;    # values that are readable from its SSD
}

struct Route {
  key @0 :Data;
  putId @1 :UInt64;
  bytes @2 :UInt64;
  lease @3 :UInt64;
  nodes @4 :List(Text);       # memory replicas
  inFlight @5 :UInt32;        # puts that have begun and not ended
  ssdNodes @6 :List(Text);    # SSD replicas
}

struct KeyLease {
  id @0 :UInt64;
  ttlMs @1 :UInt64;
  leftMs @2 :UInt64;          # until it ends, unless it is kept alive
  keys @3 :UInt64;            # put under it
}

interface Operator {
  # For people: fluxonctl. What is read is cut into pages.
  members @0 () -> (members :List(Member));
  routes @1 (prefix :Data, after :Data, limit :UInt32) -> (routes :List(Route), more :Bool);
  drain @3 (node :Text, cancel :Bool) -> (code :UInt16, detail :Text);
  # The node's values are brought to other nodes; then it leaves for good. A node that is not there is waited for no more. `members`
  # shows how far it is. `cancel` takes a drain back whose node has not left.

  evict @4 (node :Text, percent :UInt32) -> (code :UInt16, detail :Text);
  # Values go until at most `percent` of each segment is in use, or of the segment of one node; as far as nobody reads them.

  status @2 () -> (cluster :Text, clusterId :Text, term :UInt64, master :UInt64, pid :UInt64, http :Text, leaseMs :UInt64,
                   keys :UInt64, inFlightPuts :UInt64, recovering :Bool, uptimeMs :UInt64, listen :Text);
  leases @5 (after :UInt64, limit :UInt32) -> (leases :List(KeyLease));
  # Key leases that live, by id; fewer than `limit` only at the end. `limit` 0, or more than 1000: 1000.
}
