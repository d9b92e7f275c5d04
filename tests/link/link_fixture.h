// Owners without daemons: a directory and a segment in plain memory, and a tcp link over them.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "link/tcp/tcp_link.h"
#include "shm/directory_writer.h"
#include "shm/hazard_scan.h"
#include "shm/segment_format.h"

namespace fluxon::link::tcp {

struct Pages {
  explicit Pages(size_t bytes) : size((bytes + 4095) / 4096 * 4096), data(static_cast<char*>(std::aligned_alloc(4096, size))) {
    std::memset(data, 0, size);
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  size_t size;
  char* data;
};

inline net::Secret secretOf(const std::string& text) {
  char name[] = "/tmp/fluxon-link-XXXXXX";
  ::close(::mkstemp(name));
  std::ofstream(name) << text;
  ::chmod(name, 0600);
  Result<net::Secret> secret = net::Secret::load(name);
  ::unlink(name);
  REQUIRE(secret.ok());
  return secret.value();
}

// The bytes of value `seed`.
inline std::string bytesOf(uint64_t seed, size_t length) {
  std::string text(length, '\0');
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < length; at += 8) {
    const uint64_t word = random();
    std::memcpy(text.data() + at, &word, std::min<size_t>(8, length - at));
  }
  return text;
}

struct Directory {
  explicit Directory(uint64_t segmentBytes = 64 << 20)
      : shape(shm::DirectoryWriter::shapeFor(256, segmentBytes)),
        directory(shm::directoryFileBytes(shape.buckets, shape.overflowSlots)),
        keys(shm::keysFileBytes(shape.keysBytes)),
        segment(shm::kSegmentDataOffset + segmentBytes),
        writer(shm::DirectoryWriter::layout(directory.data, keys.data, shape, Incarnation(9), "cluster", "node"), shape) {
    auto* s = reinterpret_cast<shm::SegmentHeader*>(segment.data);
    std::memcpy(s->file.magic, shm::kSegmentMagic, 8);
    s->file.version = shm::kFormatVersion;
    s->file.headerBytes = sizeof(shm::SegmentHeader);
    s->file.fileBytes = segment.size;
    s->file.incarnation = 9;
    s->dataBytes = segmentBytes;
    writer.setServing(Incarnation(5));
    writer.setLease(INT64_MAX);
    view = shm::DirectoryView::over(directory.data, directory.size, keys.data, keys.size, segment.data, segment.size).value();
  }
  char* at(uint64_t offset) { return segment.data + shm::kSegmentDataOffset + offset; }
  // Puts it behind what was put before.
  uint32_t put(const std::string& key, uint64_t id, const std::string& value) {
    const uint32_t slot = writer.grant(key, keyHash(key), end, value.size(), 1, OperationId(1)).value();
    std::memcpy(at(end), value.data(), value.size());
    end += (value.size() + 4096) / 4096 * 4096;
    writer.submit(slot);
    writer.commit(slot, PutId(id));
    return slot;
  }

  shm::DirectoryWriter::Shape shape;
  Pages directory, keys, segment;
  shm::DirectoryWriter writer;
  shm::DirectoryView view;
  uint64_t end = 0;
};

constexpr char kSecret[] = "0123456789abcdef";

inline Settings settingsOf(bool poll) {
  Settings settings;
  settings.refuseUring = poll;
  settings.stall = seconds(5);
  return settings;
}

// Both engines: TEST_CASE bodies run once for each.
template <class Body>
void onBoth(Body body) {
  SUBCASE("io_uring") { body(settingsOf(false)); }
  SUBCASE("poll") { body(settingsOf(true)); }
}

// One owner.
struct Node {
  explicit Node(const Settings& settings, const std::string& nodeName = "n", const std::string& secret = kSecret)
      : name(nodeName), link(TcpLink::start(settings, secretOf(secret), nodeName, files.view, clientFile()).value()) {
    link->setIncarnation(Incarnation(7));
    // Messages are taken in their order: when this is answered the incarnation is set.
    link->unpublish(UINT64_MAX);
    REQUIRE(await([&] { return withdrawn.count(UINT64_MAX) != 0; }));
  }
  shm::ClientFile& clientFile() { return *reinterpret_cast<shm::ClientFile*>(client.data); }
  PeerAddress peer() const { return {name, Incarnation(7), link->address()}; }

  // Fetches `key` of `from` into `to`.
  uint64_t ask(const PeerAddress& from, const std::string& key, uint64_t putId, char* to, uint64_t bytes, Duration within = seconds(20)) {
    link->fetch(from, {{++lastId, key, keyHash(key), PutId(putId), 0, to, bytes, bootTime() + within}});
    return lastId;
  }
  uint64_t askExport(const PeerAddress& from, uint64_t exportId, char* to, uint64_t bytes, Duration within = seconds(20)) {
    link->fetch(from, {{++lastId, "", 0, {}, exportId, to, bytes, bootTime() + within}});
    return lastId;
  }
  uint64_t askStaged(const PeerAddress& from, uint64_t exportId, char* to, uint64_t bytes, Duration within = seconds(20)) {
    link->fetch(from, {{++lastId, "", 0, {}, exportId, to, bytes, bootTime() + within, true}});
    return lastId;
  }
  void collect() {
    const LinkEvents events = link->reap();
    for (const Fetched& each : events.fetched) CHECK_MESSAGE(ended.emplace(each.id, each.error).second, "a fetch ended twice");
    for (const uint64_t exportId : events.unpublished) withdrawn[exportId]++;
  }
  template <class Condition>
  bool await(Condition condition, Duration within = seconds(30)) {
    const Time until = bootTime() + within;
    while (!condition()) {
      if (bootTime() >= until) return false;
      pollfd waiting{link->eventFd(), POLLIN, 0};
      ::poll(&waiting, 1, 20);
      collect();
    }
    return true;
  }
  Error outcome(uint64_t id) {
    if (!await([&] { return ended.count(id) != 0; })) return {Code::outcomeUnknown, "no event"};
    return ended[id];
  }
  Error get(const PeerAddress& from, const std::string& key, uint64_t putId, char* to, uint64_t bytes) {
    return outcome(ask(from, key, putId, to, bytes));
  }

  std::string name;
  Directory files;
  Pages client{sizeof(shm::ClientFile)};
  uint64_t lastId = 0;
  std::map<uint64_t, Error> ended;
  std::map<uint64_t, int> withdrawn;
  std::unique_ptr<TcpLink> link;
};

}  // namespace fluxon::link::tcp
