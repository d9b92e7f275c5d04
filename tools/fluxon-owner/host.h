// The seam between the logic of an owner and its process. The process calls OwnerCore with commands of clients, messages and times; the
// logic sends answers, requests, scans, fetches and exports out through Host. No type here is a socket, a promise or a file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/put_mode.h"
#include "rpc/messages.h"
#include "shm/client_format.h"
#include "ssd/messages.h"

namespace fluxon::owner {

// How a get wants its answer.
struct GetMode {
  bool hold = false;        // the value is to be held by a held word
  bool localOnly = false;   // without the master
  bool placedHere = false;  // another owner has named this one
  bool bringHere = false;   // the neighbour that has the value does not take the client

  // Its client has asked another owner, or this one, before: that one counts it.
  bool sentHere() const { return localOnly || placedHere; }
  bool operator==(const GetMode&) const = default;
};

// A command, copied out of shared memory and checked: lengths, and flags that its kind has.
struct Command {
  shm::CommandKind kind{};
  PutMode put;           // putStart, putInline
  uint8_t replicas = 0;  // putStart, putInline: owners that shall have the value
  GetMode get;           // get
  std::string key;
  std::string extra;
  uint64_t valueBytes = 0;
  uint64_t slotRef = 0;
  KeyLeaseId lease;
  Time deadline;
  unsigned attempts = 0;  // how often it has been put off
  // A get on its way:
  std::string avoid;         // the node that failed
  bool far = false;          // the neighbour that has the value cannot be reached
  bool alone = false;        // asks the master although another get of the key is asking
  bool counted = false;      // is in the counters
  unsigned ssdFailures = 0;  // how often an SSD that was to have the value did not
};

struct Answer {
  Code code = Code::ok;
  uint64_t slotRef = 0;
  PutId putId;
  uint64_t offset = 0;
  uint64_t valueBytes = 0;
  KeyLeaseId lease;
  std::string node;
  std::string payload;  // detail of an error, listing, names
  bool hold = false;    // the client is to hold the slot by a held word, set before it hears the answer
  shm::AnswerSource source = shm::AnswerSource::memory;
};

// A value to bring into the segment: the value of the key with the put_id at the peer, or what the peer exports.
struct Fetch {
  uint64_t id = 0;
  rpc::Peer peer;
  std::string key;
  PutId putId;
  ExportId exportId;          // 0: the readable value
  uint64_t sourceOffset = 0;  // of what is exported, in the peer's segment
  uint64_t offset = 0;
  uint64_t bytes = 0;
  Time deadline;
  bool ssd = false;  // from this owner's own SSD
};

// The writer of extents that ssdd loads, its mark in the directory. No client has this id.
constexpr ClientId kSsdWriter{UINT64_MAX};

// Where a command came from: the client and its command slot. client 0: nobody waits for an answer.
struct Caller {
  ClientId client;
  uint32_t slot = 0;
  explicit operator bool() const { return bool(client); }
};

// How long a caller still waits, rounded up; 0: not any more.
constexpr uint64_t timeLeftMs(Time deadline, Time now) { return deadline > now ? static_cast<uint64_t>((deadline - now).ms()) + 1 : 0; }

class Host {
 public:
  virtual ~Host() = default;
  virtual void send(const rpc::Request&) = 0;
  // False: the caller has given up; what the answer grants must be undone (a hold is none then).
  virtual bool answer(Caller, Answer) = 0;
  // An answer without a value, to who waits for one.
  bool answerCode(Caller caller, Code code, std::string detail = {}) {
    if (!caller) return true;
    Answer refusal;
    refusal.code = code;
    refusal.payload = std::move(detail);
    return answer(caller, std::move(refusal));
  }
  // Looks for hazards on `refs`, in a thread; the result comes by scanned().
  virtual void scan(uint64_t scan, std::vector<uint64_t> refs) = 0;
  // The result comes by fetched(), also after cancelFetches(): from then on nothing writes into the extent.
  virtual void fetch(Fetch) = 0;
  virtual void cancelFetches() = 0;
  // Lets peers read bytes of the segment under an id; unexport() ends that, and unexported() says when nobody reads them any more.
  // The first `ready` bytes are there; a peer that asks for more waits for exportProgress(), or fails with exportFailed().
  virtual void exportValue(ExportId id, uint64_t offset, uint64_t bytes, uint64_t ready) = 0;
  virtual void exportProgress(ExportId id, uint64_t ready) = 0;
  virtual void exportFailed(ExportId id) = 0;
  virtual void unexport(ExportId id) = 0;
  // Can clients of this owner read the peer's segment?
  virtual bool neighbour(const rpc::Peer&) = 0;
  // Sends to the ssdd that is attached; its messages come by OwnerCore::ssd(). Loads go by fetch(), which keeps its promise when ssdd
  // dies, too.
  virtual void ssd(ssd::Message) = 0;
  // The contents of the SSD are worth nothing any more: ends the channel; ssdd comes back empty, as another life. `why`: for people.
  virtual void ssdStartOver(const char* why) = 0;
  // The master has moved everything elsewhere: this process is to leave for good.
  virtual void leave() = 0;
};

}  // namespace fluxon::owner
