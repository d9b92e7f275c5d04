// An ssdd process: the daemon's logic over shard files that outlive it, and its channel to the owner of its node. I/O that has begun goes
// on after its death, as the kernel's does; until it has ended the next one finds the shards locked, and so does the owner. A disk that
// hangs begins and ends nothing.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "scheduler.h"
#include "ssd_core.h"

namespace fluxon::sim {

class World;
class SimOwner;
class Memory;

// Between one life of an owner and one of its ssdd. Messages keep their order. ssdd hears what is in the ring when the owner ends, but not
// what there was no room for; of ssdd nothing is heard any more when it has ended.
struct Channel {
  SimOwner* owner = nullptr;
  uint64_t ownerLife = 0;
  std::shared_ptr<Memory> memory;  // whose segment ssdd has mapped
  bool open = true;
  Time lastToOwner{0}, lastToSsdd{0};
  uint64_t sent = 0, heard = 0, kept = UINT64_MAX;  // to ssdd; those from `kept` on are lost
};

class SimSsdd final : public Process, private ssdd::Disk, private ssdd::Host {
 public:
  SimSsdd(World& world, Scheduler& scheduler, SimOwner& owner);

  void start();
  void kill();
  // Some process, or the kernel for one that has died, has I/O on the shards.
  bool locked() const { return up() || inFlight_ > 0; }
  // How often an I/O fails, or finds other bytes than were written: one in so many, 0: never.
  void failOneIn(uint64_t n) { failing_ = n; }
  // One of its devices, or all.
  void hang(Duration howLong);
  void recover() { hangsUntil_.fill(Time{0}); }

  // --- the channel
  void hear(const std::shared_ptr<Channel>&, uint64_t number, const ssd::Message&);
  void ended(const std::shared_ptr<Channel>&);
  const std::shared_ptr<Channel>& channel() const { return channel_; }

  Incarnation content() const { return content_; }
  // Key → put_id of all entries that can be read.
  std::map<std::string, uint64_t> entries();
  const ssdd::SsdCore& core() const { return *core_; }
  // In the life of its content it has said that this is persisted.
  bool hasPersisted(PutId putId) const { return persisted_.count(putId) != 0; }

 private:
  void attach();
  void afterEvent() override;
  struct Io {
    std::function<void()> begin, end;
    std::function<void(Error)> over;  // tells the core, if it is there
    uint64_t device = 0;
    bool begun = false, takenBack = false;
  };
  void io(Io);
  void step(const std::shared_ptr<Io>&);
  void touch(ssdd::ShardId shard, uint64_t from, uint64_t to, bool write);
  void untouch(ssdd::ShardId shard, uint64_t from, uint64_t to);
  bool fails() { return failing_ != 0 && scheduler_.oneIn(failing_); }
  Duration ioTime();

  // ssdd::Disk
  void write(const ssdd::WriteJob&) override;
  void read(const ssdd::ReadJob&) override;
  void check(const ssdd::CheckJob&) override;
  void cancelQueued(ssdd::DeviceIndex) override;
  void tick();
  // ssdd::Host
  void send(ssd::Message) override;

  World& world_;
  SimOwner& owner_;
  std::vector<std::string> shards_;
  const bool slow_;
  std::unique_ptr<ssdd::SsdCore> core_;
  Incarnation content_;
  std::shared_ptr<Channel> channel_;
  unsigned inFlight_ = 0;
  std::vector<std::shared_ptr<Io>> queued_;
  const uint64_t devices_;
  std::array<Time, 2> hangsUntil_{};
  uint64_t failing_ = 0;
  // Byte ranges with I/O: two at once are fine if both read.
  struct Touched {
    uint64_t shard, from, to;
    bool write;
  };
  std::vector<Touched> touched_;
  std::vector<ssd::Message>* listing_ = nullptr;
  PutId loading_;                                           // by the message that is being heard
  std::map<std::pair<uint64_t, uint64_t>, PutId> records_;  // by shard and offset in it: what was written there last
  std::unordered_map<uint64_t, PutId> asked_;               // persists, by the owner's id
  std::unordered_set<PutId> persisted_;
};

}  // namespace fluxon::sim
