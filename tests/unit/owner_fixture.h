// An owner without sockets and threads: a directory in plain memory, clients and a master that say what a test says, and scans
// of hazards that end when the test lets them. The lease is 10 s, the segment 1 MiB: values above 16 KiB bypass the reserve.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "owner_core.h"

namespace fluxon::owner {

constexpr uint64_t kSegmentBytes = 1 << 20;
constexpr uint64_t kLarge = 20'000;  // bypasses the reserve

// Zeroed memory that starts at a page.
class Pages {
 public:
  explicit Pages(size_t bytes) : data_(static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
    std::memset(data_.get(), 0, (bytes + 4095) / 4096 * 4096);
  }
  char* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
};

struct HostStub final : Host {
  struct Given {
    Caller caller;
    Answer answer;
  };
  struct Asked {
    uint64_t id;
    std::vector<uint64_t> refs;
  };
  std::deque<rpc::Request> sent;
  std::vector<Given> answers;
  std::deque<Asked> scans;
  bool listening = true;  // false: callers have given up
  void send(const rpc::Request& request) override { sent.push_back(request); }
  bool answer(Caller caller, Answer answer) override {
    if (answer.hold && listening) held.insert(answer.slotRef);
    answers.push_back({caller, std::move(answer)});
    return listening;
  }
  std::multiset<uint64_t> held;  // by held words
  void scan(uint64_t id, std::vector<uint64_t> refs) override { scans.push_back({id, std::move(refs)}); }
  void fetch(Fetch fetch) override { fetches.push_back(std::move(fetch)); }
  void cancelFetches() override { cancelled = true; }
  void exportValue(ExportId id, uint64_t, uint64_t, uint64_t ready) override {
    exported.insert(id);
    ready_[id] = ready;
  }
  void exportProgress(ExportId id, uint64_t ready) override { ready_[id] = ready; }
  void exportFailed(ExportId id) override { failed.insert(id); }
  void ssd(ssd::Message message) override { toSsd.push_back(std::move(message)); }
  void ssdStartOver(const char*) override { startedOver = true; }
  void unexport(ExportId id) override {
    CHECK(exported.erase(id) == 1);
    if (noLink) noLink(id);
  }
  std::function<void(ExportId)> noLink;  // nobody could be reading: the end of an export is told at once
  bool neighbour(const rpc::Peer& peer) override { return peer.hostId == "h"; }
  void leave() override { left = true; }
  std::deque<Fetch> fetches;
  std::set<ExportId> exported;
  std::map<ExportId, uint64_t> ready_;
  std::set<ExportId> failed;
  std::deque<ssd::Message> toSsd;
  bool startedOver = false;
  bool cancelled = false, left = false;
};

// A request that the owner has sent.
template <class T>
struct Sent : T {
  OperationId id;
};

struct Node {
  explicit Node(uint64_t maxKeys = 64, bool join = true, OwnerCore::Settings settings = {.node = "n"})
      : shape(shm::DirectoryWriter::shapeFor(maxKeys, kSegmentBytes)),
        directoryPages(shm::directoryFileBytes(shape.buckets, shape.overflowSlots)),
        keyPages(shm::keysFileBytes(shape.keysBytes)),
        segmentPages(kSegmentBytes),
        directory(shm::DirectoryWriter::layout(directoryPages.data(), keyPages.data(), shape, Incarnation(1), "c", "n"), shape),
        core(std::move(settings), directory, segmentPages.data(), kSegmentBytes, host) {
    if (join) rejoin();
  }

  // --- joining
  void rejoin() {
    core.drop(now);
    scanAll();
    occupied = core.occupied();
    host.sent.clear();
    core.joined(Incarnation(++incarnations + 100), seconds(10), now, now);
  }
  void pass(Duration d) {
    now = now + d;
    core.tick(now);
  }

  // --- clients
  Caller client(uint64_t id) { return {ClientId(id), nextSlot++}; }
  Caller run(Command command, uint64_t clientId = 1) {
    const Caller caller = client(clientId);
    command.deadline = now + seconds(60);
    core.command(caller, std::move(command), now);
    return caller;
  }
  Caller run(shm::CommandKind kind, std::string key = {}, uint64_t clientId = 1) {
    return run({.kind = kind, .key = std::move(key)}, clientId);
  }
  Caller onRef(shm::CommandKind kind, uint64_t ref, uint64_t clientId = 1) { return run({.kind = kind, .slotRef = ref}, clientId); }
  Caller putStart(std::string key, uint64_t bytes = kLarge, PutMode mode = {}, uint64_t clientId = 1) {
    return run({.kind = shm::CommandKind::putStart, .put = mode, .key = std::move(key), .valueBytes = bytes}, clientId);
  }
  Caller putInline(std::string key, std::string value) {
    return run({.kind = shm::CommandKind::putInline, .key = std::move(key), .extra = std::move(value)});
  }
  Caller get(std::string key, GetMode mode = {}, uint64_t clientId = 1) {
    return run({.kind = shm::CommandKind::get, .get = mode, .key = std::move(key)}, clientId);
  }
  std::optional<Answer> answered(Caller caller) const {
    std::optional<Answer> found;
    for (const HostStub::Given& given : host.answers) {
      if (given.caller.client != caller.client || given.caller.slot != caller.slot) continue;
      CHECK_FALSE(found.has_value());  // once
      found = given.answer;
    }
    return found;
  }
  Answer answer(Caller caller) const {
    const std::optional<Answer> found = answered(caller);
    REQUIRE(found);
    return *found;
  }

  // --- the master
  // The oldest request of a kind that has been sent and not been taken yet.
  template <class T>
  Sent<T> take() {
    for (auto it = host.sent.begin(); it != host.sent.end(); ++it) {
      if (!it->is<T>()) continue;
      Sent<T> request{*it->as<T>(), it->id};
      host.sent.erase(it);
      return request;
    }
    FAIL("no request of the kind");
    return {};
  }
  template <class T>
  size_t sent() const {
    size_t count = 0;
    for (const rpc::Request& request : host.sent) count += request.is<T>();
    return count;
  }
  void reply(rpc::Reply reply) { core.message(std::move(reply), now); }
  template <class T>
  void reply(const Sent<T>& to, rpc::Answer answer) {
    reply({to.id, Code::ok, {}, std::move(answer)});
  }
  // Done, or all that was asked for is taken, or nothing of it is given.
  template <class T>
  void reply(const Sent<T>& to) {
    if constexpr (T::template kTakes<rpc::InventoryTaken>)
      reply(to, rpc::InventoryTaken());
    else if constexpr (T::template kTakes<rpc::Reserved>)
      reply(to, rpc::Reserved());
    else
      reply(to, rpc::Done());
  }
  template <class T>
  void refuse(const Sent<T>& request, Code code) {
    reply({request.id, code, {}, {}});
  }
  void started(const Sent<rpc::PutStart>& start, PutId id, uint64_t offset) {
    reply(start, rpc::PutGranted{.putId = id, .offset = offset});
  }
  // Of a put or a copy.
  template <class T>
  void ended(const Sent<T>& done, PutId id, bool published = true) {
    if constexpr (T::template kTakes<rpc::PutEnded>)
      reply(done, rpc::PutEnded{id, published});
    else
      reply(done, rpc::CopyEnded{id, published, {}});
  }
  void order(rpc::MasterMessage order) { core.message(order, now); }
  void invalidate(const std::string& key, PutId below) { order(rpc::Invalidate{OrderId(++orders), {{key, below}}}); }
  void reclaim(const std::string& key, PutId id, uint64_t offset) { order(rpc::Reclaim{OrderId(++orders), {{key, id, offset}}}); }

  // --- hazards
  // Lets the oldest scan end; `hazards` are the slots that some client names.
  void scanOne(const std::set<uint64_t>& hazards = {}) {
    REQUIRE_FALSE(host.scans.empty());
    const HostStub::Asked asked = std::move(host.scans.front());
    host.scans.pop_front();
    std::vector<bool> held;
    for (const uint64_t ref : asked.refs) held.push_back(hazards.count(ref) != 0 || host.held.count(ref) != 0);
    core.scanned(asked.id, held, now);
  }
  void scanAll(const std::set<uint64_t>& hazards = {}) {
    for (size_t n = host.scans.size(); n > 0; --n) scanOne(hazards);
  }

  // --- steps of tests
  // A grant of a put through the master.
  Answer granted(const std::string& key, uint64_t id, uint64_t offset, PutMode mode = {}, uint64_t clientId = 1) {
    const Caller caller = putStart(key, kLarge, mode, clientId);
    started(take<rpc::PutStart>(), PutId(id), offset);
    return answer(caller);
  }
  // A put that is started, committed and published; its slot.
  uint32_t put(const std::string& key, uint64_t id, uint64_t offset) {
    const Answer grant = granted(key, id, offset);
    const Caller commit = onRef(shm::CommandKind::commit, grant.slotRef);
    ended(take<rpc::PutDone>(), PutId(id));
    REQUIRE(answer(commit).code == Code::ok);
    return shm::slotOfRef(grant.slotRef);
  }
  std::optional<uint32_t> committed(const std::string& key) const { return directory.committed(key, keyHash(key)); }
  uint64_t slots(shm::SlotState state) const { return directory.count(state); }
  shm::DirectoryHeader& header() const { return *reinterpret_cast<shm::DirectoryHeader*>(directoryPages.data()); }
  bool allFree() const { return slots(shm::SlotState::free) == directory.slotCount(); }

  shm::DirectoryWriter::Shape shape;
  Pages directoryPages, keyPages, segmentPages;
  HostStub host;
  shm::DirectoryWriter directory;
  OwnerCore core;
  Time now{seconds(1000).ns};
  std::vector<Extent> occupied;
  uint64_t orders = 0;
  uint64_t incarnations = 0;
  uint32_t nextSlot = 0;
};

}  // namespace fluxon::owner
