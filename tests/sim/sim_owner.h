// An owner process: the daemon's logic (core, joining) over a directory and a segment that outlive it, its clients, and its links to
// the master and to other owners.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "joining.h"
#include "master_core.h"
#include "owner_core.h"
#include "scheduler.h"
#include "sim_ssdd.h"

namespace fluxon::sim {

class World;
class SimMaster;
class SimOwner;

// What an owner has in /dev/shm. Files that are made anew leave the old ones to those who map them.
class Memory {
 public:
  Memory(const std::string& node, const shm::DirectoryWriter::Shape& shape, Incarnation made);
  shm::DirectoryWriter::Memory directory() const { return memory_; }
  shm::DirectoryHeader& header() const { return *memory_.header; }
  char* segment() const { return segment_.get(); }
  // The first and the last 8 bytes of a value name the operation that wrote it.
  void mark(uint64_t offset, uint64_t bytes, uint64_t op) {
    std::memcpy(segment() + offset, &op, 8);
    if (bytes >= 16) std::memcpy(segment() + offset + bytes - 8, &op, 8);
  }
  // nullopt: the value is torn.
  std::optional<uint64_t> marked(uint64_t offset, uint64_t bytes) const {
    uint64_t first, last;
    std::memcpy(&first, segment() + offset, 8);
    std::memcpy(&last, bytes >= 16 ? segment() + offset + bytes - 8 : segment() + offset, 8);
    if (first != last) return std::nullopt;
    return first;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  using Pages = std::unique_ptr<char, Free>;
  static Pages pages(size_t bytes);
  Pages directory_, keys_, segment_;
  shm::DirectoryWriter::Memory memory_;
};

// A client process: attached to an owner, and to those of its neighbours that it uses. Its hazard and held words, in the files of all.
struct Client {
  uint64_t id = 0;
  SimOwner* home = nullptr;
  bool dead = false;
  std::multiset<std::pair<const Memory*, uint64_t>> held;  // by slotRef
  void hold(const Memory* memory, uint64_t ref) { held.emplace(memory, ref); }
  void letGo(const Memory* memory, uint64_t ref) {
    const auto it = held.find({memory, ref});
    if (it != held.end()) held.erase(it);
  }
};

// One connection of an owner to a master.
struct Connection {
  SimOwner* owner = nullptr;
  SimMaster* master = nullptr;
  uint64_t masterLife = 0;
  bool open = true;
  bool drained = false;  // after its end nothing more of it arrives
  std::shared_ptr<master::Member> member;
  uint64_t number = 0;       // at the master
  Time lastArrival{0};       // requests keep their order
  std::deque<Time> unheard;  // when those came that the master has not handled yet
};

class SimOwner final : public Process, private owner::Host {
 public:
  struct Place {
    std::string node, host, label;
    uint64_t segmentBytes = 0;
    bool link = true;
  };
  SimOwner(World& world, Scheduler& scheduler, Place place);

  void start();
  enum class Files { kept, lost };
  void kill(Files);
  // SIGTERM; it comes back after a while.
  void stopInOrder(bool forGood);

  const Place& place() const { return place_; }
  // Of which master it is. Until its next start clients may read here what it had there.
  size_t cluster() const { return cluster_; }
  void moveTo(size_t cluster) { nextCluster_ = cluster; }
  const owner::OwnerCore& core() const { return *core_; }
  const shm::DirectoryWriter& directory() const { return *writer_; }
  const std::shared_ptr<Memory>& memory() const { return memory_; }
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  bool joined() const { return up() && joining_ && joining_->joined() && !core_->reporting(); }
  // As readers see it: by the header alone.
  bool serving() const;
  bool ending() const { return ending_; }
  // Clients of this owner take that one for a neighbour: the same host, and leases of the same master.
  bool neighbours(const SimOwner& other) const;
  std::optional<uint32_t> committed(const std::string& key) const;

  void heartbeat();
  void tick();
  Time nextWake() const { return up() ? core_->nextWake() : Time::never(); }
  // The connection to the master ends, for both.
  void lose();
  void ended(const std::shared_ptr<Connection>&);
  void hear(const std::shared_ptr<Connection>&, Incarnation to, const rpc::MasterMessage&);

  // --- clients
  std::vector<std::shared_ptr<Client>>& clients() { return clients_; }
  std::shared_ptr<Client> attach();
  // It has died, or its files here are lost.
  void clientGone(const std::shared_ptr<Client>&);
  // A command through the ring. `then` gets the answer, unless the client has given up, after `patience`, or died before.
  void command(const std::shared_ptr<Client>&, owner::Command, std::function<void(const owner::Answer&)> then, Duration patience);

  void check() const;

  // --- its SSD
  void giveSsd() { ssdd_ = std::make_unique<SimSsdd>(world_, scheduler_, *this); }
  SimSsdd* ssdd() const { return ssdd_.get(); }
  Code attachSsd(Incarnation content, bool empty);
  void attachedSsd(const std::shared_ptr<Channel>&, Incarnation content);
  void channelEnded(const std::shared_ptr<Channel>&);
  void hearSsd(const std::shared_ptr<Channel>&, const ssd::Message&);

 private:
  struct Call {
    std::shared_ptr<Client> client;
    std::function<void(const owner::Answer&)> then;
    bool given = false;  // the client has given up
    bool taken = false;  // the owner has read the command
  };

  void connect();
  void met(const rpc::Hello&);
  void join();
  void joinAnswered(const rpc::Registered&);
  void disconnected();
  void again();
  void beat();
  void perform(const std::function<void()>&) override;
  void afterEvent() override;
  void finishStop(Time until);
  void fetchNeighbour(owner::Fetch, SimOwner&);
  void fetchByLink(owner::Fetch, SimOwner&);
  void fetchFromSsd(const owner::Fetch&);
  void serveLink(const owner::Fetch&, SimOwner& to, uint64_t life, std::function<void(Error)> fail);
  void toSsdd(const ssd::Message&);
  void cutSsd();
  void awaitLocks();
  void calm();
  void fetchEnded(uint64_t id, Error);

  // owner::Host
  void send(const rpc::Request&) override;
  bool answer(owner::Caller, owner::Answer) override;
  void scan(uint64_t, std::vector<uint64_t>) override;
  void fetch(owner::Fetch) override;
  void cancelFetches() override;
  void exportValue(ExportId id, uint64_t offset, uint64_t bytes, uint64_t ready) override { exported_[id] = {offset, bytes, ready}; }
  void exportProgress(ExportId, uint64_t ready) override;
  void exportFailed(ExportId) override;
  void ssd(ssd::Message) override;
  void ssdStartOver(const char* why) override;
  void unexport(ExportId id) override;
  bool neighbour(const rpc::Peer&) override;
  void leave() override;

  World& world_;
  Place place_;
  size_t cluster_ = 0, nextCluster_ = 0;
  shm::DirectoryWriter::Shape shape_;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<shm::DirectoryWriter> writer_;
  std::unique_ptr<owner::OwnerCore> core_;
  std::unique_ptr<owner::Joining> joining_;
  std::set<std::pair<Incarnation, OperationId>> pages_;  // of an inventory, not answered, by the life that lists it
  std::shared_ptr<Connection> connection_;
  std::vector<rpc::Request> queue_;  // to the master, in one turn
  bool ending_ = false, leaving_ = false;

  std::vector<std::shared_ptr<Client>> clients_;
  std::map<uint64_t, std::shared_ptr<Client>> attached_;  // those, and clients of neighbours
  std::map<std::pair<uint64_t, uint32_t>, Call> calls_;
  uint32_t nextCall_ = 0;
  struct Export {
    uint64_t offset = 0, bytes = 0, ready = 0;
    bool failed = false;
    unsigned readers = 0;
    bool ending = false;
  };
  std::map<ExportId, Export> exported_;
  std::unique_ptr<SimSsdd> ssdd_;
  std::shared_ptr<Channel> channel_;  // to it
  std::set<uint64_t> loads_, adrift_;
  bool leftBehind_ = false;
  std::map<uint64_t, bool> fetches_;  // under way → given up
  std::multiset<uint64_t> reading_;   // slotRefs that other owners read here
  // Of ours at a neighbour: it ends with this process.
  struct Hazard {
    SimOwner* at;
    uint64_t life, ref;
    void clear();
  };
  std::vector<Hazard> hazards_;
};

}  // namespace fluxon::sim
