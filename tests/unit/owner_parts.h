// Parts of an owner by themselves, over a directory of their own and a host that writes down what it is told.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "owner_fixture.h"
#include "publications.h"

namespace fluxon::owner {

// Joined as 7 of master 3, under a lease of 10 s, without an SSD.
struct Parts {
  Parts()
      : shape(shm::DirectoryWriter::shapeFor(64, kSegmentBytes)),
        directoryPages(shm::directoryFileBytes(shape.buckets, shape.overflowSlots)),
        keyPages(shm::keysFileBytes(shape.keysBytes)),
        directory(shm::DirectoryWriter::layout(directoryPages.data(), keyPages.data(), shape, Incarnation(1), "c", "n"), shape) {
    standing.setMaster(Incarnation(3));
    join();
  }
  void join() {
    standing.registered(Incarnation(7), seconds(10), now);
    standing.serve(now);
  }
  void endTerm() {
    calls.endTerm();
    standing.endTerm();
  }
  uint32_t granted(const std::string& key, uint64_t offset, uint64_t bytes = 100) {
    const std::optional<uint32_t> slot = directory.grant(key, keyHash(key), offset, bytes, 1, OperationId(1));
    REQUIRE(slot);
    return *slot;
  }
  uint32_t pending(const std::string& key, uint64_t offset, uint64_t bytes = 100) {
    const uint32_t slot = granted(key, offset, bytes);
    directory.submit(slot);
    return slot;
  }
  uint32_t committed(const std::string& key, uint64_t putId, uint64_t offset, uint64_t bytes = 100) {
    const uint32_t slot = pending(key, offset, bytes);
    directory.commit(slot, PutId(putId));
    return slot;
  }
  void scan(bool held = false) {
    retirement.tick(now);
    REQUIRE_FALSE(host.scans.empty());
    const HostStub::Asked asked = std::move(host.scans.front());
    host.scans.pop_front();
    retirement.scanned(asked.id, std::vector<bool>(asked.refs.size(), held), now);
  }
  shm::SlotState state(uint32_t slot) const { return directory.state(slot); }
  // What has been sent since it was asked last.
  std::vector<rpc::Request> sent() {
    std::vector<rpc::Request> requests(host.sent.begin(), host.sent.end());
    host.sent.clear();
    return requests;
  }
  // That, which is one request, and of the kind.
  template <class T>
  T sentOne() {
    const std::vector<rpc::Request> requests = sent();
    REQUIRE(requests.size() == 1);
    REQUIRE(requests[0].is<T>());
    return *requests[0].as<T>();
  }

  shm::DirectoryWriter::Shape shape;
  Pages directoryPages, keyPages;
  HostStub host;
  shm::DirectoryWriter directory;
  Time now{seconds(1000).ns};
  bool persisting = false;
  std::vector<std::string> woken;
  std::vector<std::string> left;  // why loads were left
  MasterCalls calls{{1 << 14, 1024, 1 << 16}, host};
  Standing standing{directory, calls};
  KeyControls controls{[this](Caller, Command command, Time) { woken.push_back(command.key); }};
  Retirement retirement{directory, host,     calls,
                        standing,  controls, {[this](uint32_t, Time) { return !persisting; }, [this](uint32_t) { return persisting; }}};
  SsdTier ssd{{{128, kSegmentBytes}, false},
              directory,
              host,
              calls,
              standing,
              retirement,
              {[this](const char* why, Time) { left.push_back(why); }, [](uint64_t, Time) {}}};
  Publications publications{directory, standing, retirement, controls, ssd};
};

}  // namespace fluxon::owner
