# The protocol between owners and their master, and between operators and the master. Version 2.
#
# Meeting. An owner calls `hello`, then `register`; each side names the version of the protocol that it speaks and refuses another one.
# A session ends with its connection; the owner registers again with the same incarnation, and both sides send what is unanswered
# once more. A master that does not hear from an owner for a lease and its margin fences it: its incarnation never comes again.
#
# Requests and replies. `submit` carries requests; answers that are ready come back in its result, later ones and orders in `deliver`.
# Every request has an id, counted from 1 within one incarnation of the owner. The master carries each id out once and answers a
# repetition with the same reply, within one term. `lowestUnanswered` lets it forget; a request below it is refused (`protocol`). It
# also refuses ids 2^17 or more beyond the lowest unanswered one, but for heartbeats and answers to orders: an owner holds the
# others back well before. A reply has a code of fluxon/errors.def; only with `ok` it brings an answer, of the kinds that the request
# names here. `fenced`: this incarnation is over, and so is everything that it has asked for.
#
# Orders. They have ids of the master's, counted from 1 within a term, and may be repeated until the owner has answered them; carrying
# one out twice is harmless. Messages of one direction may overtake each other (a reply in a result, an order in a `deliver`):
# neither side relies on their order, only on put_ids.
#
# Values. A version of a key is its put_id: the term in the upper 20 bits, a sequence in the lower 44. The newest one that has been
# published is the key's route. A value lies in extents, of owners' segments (offsets in bytes, multiples of 4096), and on their SSDs.
# The master gives an extent to an owner with its answer to a request, or with an order, and has it back when the owner says so and
# not before: by `release`, by `reclaimDone` with the result ok, by `staged` with an error, or by `unstaged`. Until then nobody else
# writes there. A route's extent is not released before the route is gone.
#
# Times are milliseconds from the moment of sending. Texts are UTF-8; keys are 1 to 4096 bytes of any kind.
@0xb6f1d0f0a5c3e871;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fluxon::schema");

# --- parts of messages

struct Version {
  key @0 :Data;
  putId @1 :UInt64;
}

struct MemoryReplica {
  key @0 :Data;
  putId @1 :UInt64;
  offset @2 :UInt64;          # of its extent in the owner's segment
}

struct MemoryValue {
  key @0 :Data;
  putId @1 :UInt64;
  offset @2 :UInt64;          # of its extent in the owner's segment
  bytes @3 :UInt64;           # payload
  lease @4 :UInt64;           # key lease, 0: none
}

struct SsdValue {
  key @0 :Data;
  putId @1 :UInt64;
  bytes @2 :UInt64;           # payload
}

struct ListedKey {
  key @0 :Data;
  bytes @1 :UInt64;
  putId @2 :UInt64;
}

struct Peer {
  node @0 :Text;
  hostId @1 :Text;            # as in its registration
  link @2 :Text;              # as in its registration, empty: none of its links listens
  incarnation @3 :UInt64;
}

struct Exported {
  # What an owner lets peers fetch though it is no readable value.
  id @0 :UInt64;              # of a put: its put_id; of a stage: the order's id with bit 63
  offset @1 :UInt64;          # in the segment of the owner that exports it
}

struct PutMode {
  onExisting @0 :OnExisting;
  onInFlight @1 :OnInFlight;
  home @2 :Home;
  enum OnExisting { replace @0; reject @1; }   # reject: `exists` if the key is readable, or was at any time since the put began
  enum OnInFlight { proceed @0; reject @1; }   # reject: `inFlight` if another put of the key has begun and its deadline is to come
  enum Home { any @0; here @1; }               # here: another owner has chosen this one, the value goes nowhere else
}

# --- requests of an owner

struct Request {
  id @0 :UInt64;
  union {
    heartbeat @1 :Heartbeat;
    putStart @2 :PutStart;
    putDone @3 :PutDone;
    putReserved @4 :PutReserved;
    putAbort @5 :PutAbort;
    reserve @6 :Reserve;
    release @7 :Release;
    dropped @8 :Dropped;
    getStart @9 :GetStart;
    getDone @10 :GetDone;
    statKey @11 :StatKey;
    removeKey @12 :RemoveKey;
    countKeys @13 :CountKeys;
    listKeys @14 :ListKeys;
    leaseGrant @15 :LeaseGrant;
    leaseKeepAlive @16 :LeaseKeepAlive;
    leaseRevoke @17 :LeaseRevoke;
    spread @18 :Spread;
    inventoryPage @19 :InventoryPage;
    ssdLife @20 :SsdLife;
    ssdCommit @21 :SsdCommit;
    ssdEvicted @22 :SsdEvicted;
    invalidateDone @23 :InvalidateDone;
    reclaimDone @24 :ReclaimDone;
    replicateDone @25 :ReplicateDone;
    staged @26 :Staged;
    unstaged @27 :Unstaged;
  }
}

struct Heartbeat {
  # Prolongs the owner's serving lease, which runs from before this was sent. Answered by done.
  serving @0 :Bool;             # the owner has joined: it knows which values of its inventory were refused
  touched @1 :List(UInt64);     # offsets of extents that were read since the last one, oldest first
}

struct PutStart {
  # Asks for an extent. Answered by putGranted or putElsewhere; it may wait for space until the deadline or the master's patience
  # (`noSpace`). The put is in flight until putDone or putAbort.
  key @0 :Data;
  bytes @1 :UInt64;
  mode @2 :PutMode;
  lease @3 :UInt64;             # key lease under which the value shall live, 0: none
  timeLeftMs @4 :UInt64;        # until the caller's deadline, here and below
  onBehalfOf @5 :Text;          # a neighbour that asks: the value is only filled here. Empty: nobody
}

struct PutDone {
  # The extent is filled, and this owner's older replicas of the key are retired. Answered by putEnded when every other replica is
  # invalidated and the value is the route, or when it is overwritten. `exists`, `noLease`, `unavailable`: it is given up.
  put @0 :UInt64;               # id of the PutStart
}

struct PutReserved {
  # Start and done in one, of a put whose extent came by Reserve. Answered by putEnded. What the master refuses, also as wrong
  # (`protocol`), comes back by Release.
  key @0 :Data;
  bytes @1 :UInt64;
  offset @2 :UInt64;
  mode @3 :PutMode;
  lease @4 :UInt64;
}

struct PutAbort {
  # The writer has ended. Answered by done; the extent comes back by Release.
  put @0 :UInt64;               # id of the PutStart
}

struct Reserve {
  # Asks for extents ahead of puts. Answered by reserved, maybe with fewer or none.
  extentBytes @0 :UInt64;
  count @1 :UInt64;
}

struct Release {
  # Extents that nobody reads or writes any more, and that are no route: of refused, overwritten and aborted puts, of retired replicas,
  # of copies that did not become replicas, of the reserve. Answered by done.
  offsets @0 :List(UInt64);
}

struct Dropped {
  # Replicas that the owner has given up on its own account. Their extents come back by Release. Answered by done.
  replicas @0 :List(MemoryReplica);
}

struct GetStart {
  # Where is the value? Answered by readAt, fetchFrom, loadHere, or `miss`. The latter two begin a transfer that ends with getDone.
  key @0 :Data;
  neighbours @1 :NeighbourUse;
  avoid @2 :Text;               # a node that did not deliver, empty: none
  timeLeftMs @3 :UInt64;
  enum NeighbourUse {           # what can be done about a neighbour that has the value
    read @0;                    # its segment is read
    copy @1;                    # it does not take the client; this owner can copy from there
    none @2;                    # this owner cannot reach it
  }
}

struct GetDone {
  # The bytes are there, or nobody writes into the extent any more. Answered by copyEnded.
  get @0 :UInt64;               # id of the GetStart
  code @1 :UInt16;              # miss, corrupt or system of a loadHere: this owner's SSD does not have the value any more
}

struct StatKey {
  key @0 :Data;                 # Answered by keyStat, or `miss`.
  timeLeftMs @1 :UInt64;
}

struct RemoveKey {
  # Answered by done when no replica can be read any more, or `miss`.
  key @0 :Data;
  timeLeftMs @1 :UInt64;
}

struct CountKeys {
  prefix @0 :Data;              # Answered by keyCount.
  timeLeftMs @1 :UInt64;
}

struct ListKeys {
  prefix @0 :Data;              # Answered by keyPage, in byte order.
  after @1 :Data;               # keys that come after it
  limit @2 :UInt64;             # 0: as many as the master gives at once
  timeLeftMs @3 :UInt64;
}

struct LeaseGrant {
  ttlMs @0 :UInt64;             # Answered by leaseGranted.
}

struct LeaseKeepAlive {
  lease @0 :UInt64;             # Answered by done, or `noLease`.
}

struct LeaseRevoke {
  # Its keys are deleted. Answered by done as RemoveKey is, or `noLease`.
  lease @0 :UInt64;
  timeLeftMs @1 :UInt64;
}

struct Spread {
  # A value that has been published shall be in the memory of so many owners. Answered by spreadEnded when it is, or cannot be.
  value @0 :Version;
  replicas @1 :UInt64;
  timeLeftMs @2 :UInt64;
}

struct InventoryPage {
  # What the owner has, oldest first. Answered by inventoryTaken. Several pages may be under way at once.
  memory @0 :List(MemoryValue);
  ssd @1 :List(SsdValue);
  pages @2 :UInt64;             # on the last one: how many there are in all, else 0
}

struct SsdLife {
  # From now on this owner's SSD is in that life (0: there is none), and empty. Of an earlier life nothing comes back. Answered by done.
  life @0 :UInt64;
}

struct SsdCommit {
  # Values that are on this owner's SSD now. Until the master has taken one the owner lists it in no inventory. Answered by ssdTaken.
  values @0 :List(SsdValue);
}

struct SsdEvicted {
  # Values that have gone from this owner's SSD by themselves. Answered by done.
  values @0 :List(Version);
}

struct InvalidateDone {
  # No reader can begin on a replica that the order named, nor find it in a later life of the owner. Answered by done.
  order @0 :UInt64;
}

struct ReclaimDone {
  # Answered by done.
  order @0 :UInt64;
  results @1 :List(Result);     # of its replicas; one that is missing counts as busy
  enum Result {
    ok @0;                      # nobody reads it, the extent is free
    busy @1;                    # it stays
    gone @2;                    # the owner had given it up; its extent comes back by Release
  }
}

struct ReplicateDone {
  # The bytes are there, or nobody writes into the extent any more. Answered by copyEnded.
  order @0 :UInt64;
  code @1 :UInt16;
}

struct Staged {
  # ok: the value can be fetched under the order's export. Else the extent is free. Answered by done.
  order @0 :UInt64;
  code @1 :UInt16;              # miss, corrupt or system: this owner's SSD does not have the value any more
}

struct Unstaged {
  order @0 :UInt64;             # Nobody reads or writes the extent any more, it is free. Answered by done.
}

# --- replies of the master

struct Reply {
  id @0 :UInt64;
  code @1 :UInt16;              # of fluxon/errors.def
  detail @2 :Text;              # for people
  union {
    done @3 :Void;
    putGranted @4 :PutGranted;
    putElsewhere @5 :PutElsewhere;
    putEnded @6 :PutEnded;
    reserved @7 :Reserved;
    readAt @8 :ReadAt;
    fetchFrom @9 :FetchFrom;
    loadHere @10 :LoadHere;
    keyStat @11 :KeyStat;
    keyCount @12 :KeyCount;
    keyPage @13 :KeyPage;
    leaseGranted @14 :LeaseGranted;
    inventoryTaken @15 :InventoryTaken;
    copyEnded @16 :CopyEnded;
    spreadEnded @17 :SpreadEnded;
    ssdTaken @18 :SsdTaken;
  }
}

struct PutGranted {
  putId @0 :UInt64;
  offset @1 :UInt64;            # of the extent to be filled
  home @2 :Peer;                # absent: the value is this owner's. An owner of another host that shall have it: putDone exports the
                                # extent under the put_id, and `home` is ordered to fetch it
}

struct PutElsewhere {
  neighbour @0 :Peer;           # an owner of this host that shall have the value: the client asks it
}

struct PutEnded {
  putId @0 :UInt64;
  published @1 :Bool;           # false: overwritten before it was done, which is a success
}

struct Reserved {
  offsets @0 :List(UInt64);
}

struct ReadAt {
  putId @0 :UInt64;
  bytes @1 :UInt64;
  owner @2 :Peer;               # of this host, or the one that asks
  ssd @3 :Bool;                 # it brings the value from its SSD for who asks it
}

struct FetchFrom {
  putId @0 :UInt64;
  bytes @1 :UInt64;
  offset @2 :UInt64;            # of the extent that the value is to be brought to
  source @3 :Peer;
  exported @4 :Exported;        # absent: the readable value of the source
}

struct LoadHere {
  putId @0 :UInt64;
  bytes @1 :UInt64;
  offset @2 :UInt64;            # of the extent that the value is to be loaded to, from the asker's own SSD
}

struct KeyStat {
  putId @0 :UInt64;
  bytes @1 :UInt64;
  lease @2 :UInt64;
  nodes @3 :List(Text);         # that have a readable replica
}

struct KeyCount {
  keys @0 :UInt64;
}

struct KeyPage {
  keys @0 :List(ListedKey);
}

struct LeaseGranted {
  lease @0 :UInt64;
}

struct InventoryTaken {
  # Everything of the page is a replica now, but for these, which must go before the owner serves.
  refused @0 :List(UInt64);     # offsets of the page's extents
  refusedSsd @1 :List(UInt32);  # indices into the page's `ssd`
}

struct CopyEnded {
  putId @0 :UInt64;
  published @1 :Bool;           # the copy is a replica now. Else its extent comes back by Release when nobody reads it
  lease @2 :UInt64;             # key lease of the value
}

struct SpreadEnded {
  replicas @0 :UInt64;          # owners that have the value
}

struct SsdTaken {
  ignored @0 :List(UInt32);     # indices of values that are no replicas: they are to go from the SSD
}

# --- orders of the master

struct MasterMessage {
  union {
    reply @0 :Reply;
    invalidate @1 :Invalidate;
    reclaim @2 :Reclaim;
    replicate @3 :Replicate;
    stage @4 :Stage;
    unstage @5 :Unstage;
    leave @6 :Void;           # everything of this owner is elsewhere: it ends, and leaves nothing behind
    shrink @7 :Void;          # space is short here: what the owner has ahead of puts goes back by Release; said again while it is
  }
}

struct Invalidate {
  # Every replica of these keys below the put_id is to go, in memory and on the SSD. Answered by invalidateDone.
  order @0 :UInt64;
  below @1 :List(Version);
}

struct Reclaim {
  # Exactly these replicas are to go, as far as nobody reads them. Answered by reclaimDone.
  order @0 :UInt64;
  replicas @1 :List(MemoryReplica);
}

struct Replicate {
  # Bring this version to the extent. Answered by replicateDone.
  order @0 :UInt64;
  key @1 :Data;
  putId @2 :UInt64;
  bytes @3 :UInt64;
  offset @4 :UInt64;
  source @5 :Peer;
  exported @6 :Exported;      # absent: the readable value of the source. Else the value of a put that waits for this copy
  timeLeftMs @7 :UInt64;
}

struct Stage {
  # Bring this version from the owner's SSD to the extent at `to`, and export it meanwhile. Answered by staged.
  order @0 :UInt64;
  key @1 :Data;
  putId @2 :UInt64;
  bytes @3 :UInt64;
  to @4 :Exported;
  timeLeftMs @5 :UInt64;
}

struct Unstage {
  # End that export. Answered by unstaged. Never sent before the answer to its stage is heard.
  order @0 :UInt64;
  exportId @1 :UInt64;
}

# --- meeting

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
  link @9 :Text;              # where its links listen: ADDRESS:PORT of tcp, NAME=ADDRESS of another, between blanks; empty: none does
  label @10 :Text;            # sub-cluster
  ssdLife @11 :UInt64;        # of what is on this owner's SSD, where values put here go as well; 0: it has none
  sentNs @12 :UInt64;         # CLOCK_BOOTTIME of its host: an earlier one that arrives late, by a connection that was given up, is refused
  values @14 :UInt64;         # in memory, that it would list
  ends @13 :List(UInt64);     # incarnations of the node that serve no more: who registers has their directory, or was they
  protocol @15 :UInt32;       # version that the owner speaks
}

interface Master {
  # The bootstrap interface.

  hello @0 () -> (clusterId :Text, cluster :Text, term :UInt64, master :UInt64, protocol :UInt32);
  # An owner that meets another term, or was fenced, or has been started again, registers under a new incarnation.

  register @1 (registration :Registration, owner :Owner)
      -> (code :UInt16, detail :Text, leaseMs :UInt64, session :Session, inventory :Bool);
  # Joins the cluster, or joins again with the same incarnation after a lost connection. With `inventory` the owner lists its
  # values first, in pages (inventoryPage), several at once, and serves when all are answered; each answer names the
  # values that must go. Without it every value must go. The serving lease of the owner runs from before it sent this call or
  # its last answered heartbeat. `unavailable`: the node is alive under an incarnation that `ends` does not name.

  operator @2 (protocol :UInt32) -> (operator :Operator);
  # Fails with a sentence if the caller speaks another version of the protocol.
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
  link @16 :Text;             # as in its registration
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
