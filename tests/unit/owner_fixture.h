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
  Caller run(shm::CommandKind kind, std::string key = {}, uint32_t flags = 0, uint64_t clientId = 1) {
    Command command;
    command.kind = kind;
    command.key = std::move(key);
    command.flags = flags;
    return run(std::move(command), clientId);
  }
  Caller onRef(shm::CommandKind kind, uint64_t ref, uint64_t clientId = 1) {
    Command command;
    command.kind = kind;
    command.slotRef = ref;
    return run(std::move(command), clientId);
  }
  Caller putStart(std::string key, uint64_t bytes = kLarge, uint32_t flags = 0, uint64_t clientId = 1) {
    Command command;
    command.kind = shm::CommandKind::putStart;
    command.key = std::move(key);
    command.valueBytes = bytes;
    command.flags = flags;
    return run(std::move(command), clientId);
  }
  Caller putInline(std::string key, std::string value) {
    Command command;
    command.kind = shm::CommandKind::putInline;
    command.key = std::move(key);
    command.extra = std::move(value);
    return run(std::move(command));
  }
  Caller get(std::string key, uint32_t flags = 0, uint64_t clientId = 1) {
    return run(shm::CommandKind::get, std::move(key), flags, clientId);
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
  rpc::Request take(rpc::RequestKind kind) {
    for (auto it = host.sent.begin(); it != host.sent.end(); ++it) {
      if (it->kind != kind) continue;
      rpc::Request request = std::move(*it);
      host.sent.erase(it);
      return request;
    }
    FAIL("no request of kind ", static_cast<int>(kind));
    return {};
  }
  size_t sent(rpc::RequestKind kind) const {
    size_t count = 0;
    for (const rpc::Request& request : host.sent) count += request.kind == kind;
    return count;
  }
  void reply(rpc::Reply reply) {
    rpc::MasterMessage message;
    message.reply = std::move(reply);
    core.message(message, now);
  }
  void reply(const rpc::Request& to, Code code = Code::ok) {
    rpc::Reply r;
    r.id = to.id;
    r.code = code;
    reply(std::move(r));
  }
  void started(const rpc::Request& start, PutId id, uint64_t offset) {
    rpc::Reply r;
    r.id = start.id;
    r.putId = id;
    r.offset = offset;
    reply(std::move(r));
  }
  void ended(const rpc::Request& done, PutId id, bool published = true) {
    rpc::Reply r;
    r.id = done.id;
    r.putId = id;
    r.published = published;
    reply(std::move(r));
  }
  void order(rpc::CommandKind kind, uint64_t id, std::vector<rpc::Version> items) {
    rpc::MasterMessage message;
    message.kind = kind;
    message.command = OperationId(id);
    message.items = std::move(items);
    core.message(message, now);
  }
  void invalidate(const std::string& key, PutId below) { order(rpc::CommandKind::invalidate, ++orders, {{key, below, 0}}); }
  void reclaim(const std::string& key, PutId id, uint64_t offset) { order(rpc::CommandKind::reclaim, ++orders, {{key, id, offset}}); }

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
  Answer granted(const std::string& key, uint64_t id, uint64_t offset, uint32_t flags = 0, uint64_t clientId = 1) {
    const Caller caller = putStart(key, kLarge, flags, clientId);
    started(take(rpc::RequestKind::putStart), PutId(id), offset);
    return answer(caller);
  }
  // A put that is started, committed and published; its slot.
  uint32_t put(const std::string& key, uint64_t id, uint64_t offset) {
    const Answer grant = granted(key, id, offset);
    const Caller commit = onRef(shm::CommandKind::commit, grant.slotRef);
    ended(take(rpc::RequestKind::putDone), PutId(id));
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
