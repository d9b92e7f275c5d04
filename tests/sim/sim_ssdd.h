// An ssdd process: the daemon's logic over shard files that outlive it, and its channel to the owner of its node. I/O that it has begun
// goes on after its death, as the kernel's does; until it has ended the next one finds the shards locked, and so does the owner.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler.h"
#include "ssd_core.h"

namespace fluxon::sim {

class World;
class SimOwner;
class Memory;

// Between one life of an owner and one of its ssdd. Messages keep their order; what was not handled at its end is not heard any more.
struct Channel {
  SimOwner* owner = nullptr;
  uint64_t ownerLife = 0;
  std::shared_ptr<Memory> memory;  // whose segment ssdd has mapped
  bool open = true;
  Time lastToOwner{0}, lastToSsdd{0};
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

  // --- the channel
  void hear(const std::shared_ptr<Channel>&, const ssd::Message&);
  void ended(const std::shared_ptr<Channel>&);
  const std::shared_ptr<Channel>& channel() const { return channel_; }

  Incarnation content() const { return content_; }
  // Key → put_id of all entries that can be read.
  std::map<std::string, uint64_t> entries();
  const ssdd::SsdCore& core() const { return *core_; }

 private:
  void attach();
  void settle() override;
  void io(Duration first, std::function<void()> begin, std::function<void()> end);
  void touch(ssd::ShardId shard, uint64_t from, uint64_t to, bool write);
  void untouch(ssd::ShardId shard, uint64_t from, uint64_t to);
  bool fails() { return failing_ != 0 && scheduler_.oneIn(failing_); }
  Duration ioTime();

  // ssdd::Disk
  void write(const ssdd::WriteJob&) override;
  void read(const ssdd::ReadJob&) override;
  void check(const ssdd::CheckJob&) override;
  void cancelQueued() override {}  // what is asked for has begun
  // ssdd::Host
  void send(ssd::Message) override;

  World& world_;
  SimOwner& owner_;
  std::vector<std::string> shards_;
  std::unique_ptr<ssdd::SsdCore> core_;
  Incarnation content_;
  std::shared_ptr<Channel> channel_;
  unsigned inFlight_ = 0;
  uint64_t failing_ = 0;
  // Byte ranges with I/O: two at once are fine if both read.
  struct Touched {
    uint64_t shard, from, to;
    bool write;
  };
  std::vector<Touched> touched_;
  std::vector<ssd::Message>* listing_ = nullptr;
};

}  // namespace fluxon::sim
