// Directory, hazards and command rings with threads of one process in the places of processes, for the thread sanitizer: every byte
// that a reader may touch must be ordered against its writer by the protocol's own words.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bell.h"
#include "base/hash.h"
#include "client/command_ring.h"
#include "shm/directory_view.h"
#include "shm/directory_writer.h"
#include "shm/hazard_scan.h"
#include "shm/mapped_file.h"
#include "shm/segment_format.h"

using namespace fluxon;
using namespace fluxon::shm;

namespace {

constexpr uint64_t kValueBytes = 128;
constexpr int kRounds = 3000;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;
Memory zeroed(uint64_t bytes) {
  void* memory = std::aligned_alloc(4096, alignUp4k(bytes));
  std::memset(memory, 0, alignUp4k(bytes));
  return Memory(memory);
}

struct Node {
  DirectoryWriter::Shape shape = DirectoryWriter::shapeFor(16, 64 * kValueBytes);
  Memory directoryMemory = zeroed(directoryFileBytes(shape.buckets, shape.overflowSlots));
  Memory keysMemory = zeroed(keysFileBytes(shape.keysBytes));
  Memory segment = zeroed(shape.segmentBytes);
  DirectoryWriter::Memory memory = DirectoryWriter::layout(directoryMemory.get(), keysMemory.get(), shape, Incarnation(3), "c", "n");
  DirectoryWriter directory{memory, shape};
  DirectoryView view;

  Node() {
    view = {memory.header,         memory.tags, memory.slots,    shape.buckets,
            directory.slotCount(), memory.keys, shape.keysBytes, static_cast<const char*>(segment.get()),
            shape.segmentBytes};
    directory.setLease(INT64_MAX);
    directory.setServing(Incarnation(3));
  }
  char* at(uint64_t offset) { return static_cast<char*>(segment.get()) + offset; }
};

}  // namespace

TEST_CASE("readers see whole values while their slots are overwritten, scanned and reused") {
  Node node;
  const Memory clientMemory = zeroed(sizeof(ClientFile));
  auto* const client = static_cast<ClientFile*>(clientMemory.get());
  HazardTable hazards(client->hazards);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> hits{0}, wrong{0};
  const std::string key = "the key";
  const uint64_t hash = keyHash(key);

  const auto read = [&](unsigned thread) {
    while (!stop.load()) {
      Hit hit;
      if (probe(node.view, hazards, thread, key, hash, hit) != Probe::hit) continue;
      for (uint64_t i = 0; i < kValueBytes; ++i) wrong += static_cast<unsigned char>(hit.data[i]) != (hit.putId.value & 0xFF);
      hazards.drop(hit.hazard);
      ++hits;
    }
  };
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < 3; ++i) readers.emplace_back(read, i);

  std::vector<uint64_t> free;
  std::vector<uint32_t> retired;
  for (uint64_t offset = 0; offset < node.shape.segmentBytes; offset += kValueBytes) free.push_back(offset);
  for (int round = 1; round <= kRounds || hits < 1000; ++round) {
    if (const auto old = node.directory.committed(key, hash)) {
      node.directory.retire(*old);
      retired.push_back(*old);
    }
    do {
      std::vector<uint64_t> refs;
      for (const uint32_t slot : retired) refs.push_back(node.directory.ref(slot));
      const std::vector<bool> held = scanHazards({client}, refs);
      std::vector<uint32_t> left;
      for (size_t i = 0; i < retired.size(); ++i) {
        if (held[i]) {
          left.push_back(retired[i]);
          continue;
        }
        free.push_back(node.directory.offset(retired[i]));
        node.directory.release(retired[i]);
      }
      retired = left;
    } while (free.empty());
    const uint64_t offset = free.front();
    free.erase(free.begin());
    const auto slot = node.directory.grant(key, hash, offset, kValueBytes, 0, OperationId(1));
    REQUIRE(slot.has_value());
    std::memset(node.at(offset), round & 0xFF, kValueBytes);
    node.directory.submit(*slot);
    node.directory.commit(*slot, PutId(static_cast<uint64_t>(round)));
  }
  stop = true;
  for (std::thread& thread : readers) thread.join();
  CHECK(wrong == 0);
  CHECK(hits > 0);
  CHECK(hazards.holders() == 0);
}

TEST_CASE("threads that share a command ring get their own answers, and abandoned commands come back") {
  Node node;
  const Memory clientMemory = zeroed(sizeof(ClientFile));
  auto* const file = static_cast<ClientFile*>(clientMemory.get());
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
  const Descriptor ours(sockets[0]), theirs(sockets[1]), bell(bell::make());
  client::CommandRing ring(*file, *node.memory.header, {.bell = bell.get(), .socket = ours.get()});
  std::atomic<bool> stop{false};

  // An owner's side in small: takes commands, answers each with its own value, after a while for those that ask for it.
  std::thread owner([&] {
    uint32_t head = 0;
    while (!stop.load() || head != file->ring.tail.load(std::memory_order_seq_cst)) {
      if (head == file->ring.tail.load(std::memory_order_seq_cst)) {
        std::this_thread::yield();
        continue;
      }
      const uint32_t index = file->ring.entries[head % kCommandSlots].load(std::memory_order_acquire);
      file->ring.head.store(++head, std::memory_order_release);
      CommandSlot& slot = file->commands[index];
      slot.state.load(std::memory_order_acquire);
      const CommandRequest request = slot.request;
      if (request.flags == kHold) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      slot.answer.code = 0;
      slot.answer.valueBytes = request.valueBytes + 1;
      slot.answer.payloadUsed = request.keyBytes;
      uint32_t expected = static_cast<uint32_t>(CommandState::submitted);
      if (!slot.state.compare_exchange_strong(expected, static_cast<uint32_t>(CommandState::completed))) {
        slot.state.store(static_cast<uint32_t>(CommandState::free), std::memory_order_release);
      }
    }
  });
  std::atomic<uint64_t> wrong{0}, timedOut{0};
  std::vector<std::thread> callers;
  for (uint64_t t = 0; t < 4; ++t) {
    callers.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        const std::string key = "key " + std::to_string(t) + " " + std::to_string(i);
        const bool slow = i % 50 == 49;
        const Duration patience = slow ? milliseconds(5) : seconds(60);
        const auto reply = ring.call({CommandKind::get, slow ? kHold : 0u, key, {}, t << 32 | i, 0, 0, bootTime() + patience});
        if (!reply.ok()) {
          wrong += reply.error().code != Code::timedOut;
          ++timedOut;
        } else {
          wrong += reply.value().valueBytes != (t << 32 | i) + 1 || reply.value().payload != key;
        }
      }
    });
  }
  for (std::thread& thread : callers) thread.join();
  stop = true;
  owner.join();
  CHECK(wrong == 0);
  CHECK(timedOut > 0);
}
