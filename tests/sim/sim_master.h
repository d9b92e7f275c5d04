// A master process: the daemon's logic (core, channels, state writer, state file) over a simulated disk.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "channels.h"
#include "disk.h"
#include "scheduler.h"
#include "state_writer.h"

namespace fluxon::sim {

class World;

class SimMaster final : public Process, private master::Outbox {
 public:
  SimMaster(World& world, Scheduler& scheduler, master::Settings settings, std::string name, std::string clusterId);

  // Reads the state file, makes the next term durable and serves; when the disk does not let it, it ends and is started again.
  void start();
  // SIGKILL. The machine may go down with it: then the disk forgets what was not synced.
  enum class Machine { stays, crashes };
  void kill(Machine);

  master::MasterCore& core() { return *core_; }
  const master::MasterCore& core() const { return *core_; }
  Disk& disk() { return disk_; }
  void tick();
  Time nextWake() const;

  // The RPC edge.
  rpc::Hello hello() const;
  struct Registration {
    rpc::Registered answer;
    std::shared_ptr<master::Member> member;
    uint64_t connection = 0;
    uint64_t version = 0;  // the answer leaves when this is on disk
  };
  Registration registerOwner(const rpc::Registration&);
  bool durable(uint64_t version) const { return version <= core_->persistedVersion(); }
  void handle(master::Member& member, uint64_t connection, std::vector<rpc::Request> requests, OperationId lowest,
              const std::vector<OperationId>& stragglers);
  void lost(master::Member& member, uint64_t connection);
  void left(master::Member& member, master::MasterCore::Content);

 private:
  void afterEvent() override;
  void write();
  void send(master::Member& member, rpc::MasterMessage message) override { channels_.send(member, std::move(message)); }
  void persist() override { writer_->changed(); }

  World& world_;
  master::Settings settings_;
  const std::string clusterId_;
  Disk disk_;
  uint64_t begun_ = 0;  // highest term that began
  std::unique_ptr<master::StateWriter> writer_;
  master::Channels channels_;
  std::unique_ptr<master::MasterCore> core_;
  bool writing_ = false;
  Time looksAgain_{0};
};

}  // namespace fluxon::sim
