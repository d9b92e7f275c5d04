// A client's file as its owner reads it, while the client writes whatever it likes wherever it likes. Commands are within their
// bounds, a slot is run once between two answers, and scans see exactly the hazards that are there.
#include <algorithm>
#include <set>

#include "client_ring.h"
#include "fuzz.h"
#include "shm/hazard_scan.h"
#include "shm_files.h"

namespace fluxon::fuzz {
namespace {

using namespace shm;
using owner::ClientRing;

enum class Act : uint8_t { write, submit, drain, answer, scan, touches, acts };

// The flags of which a command was made.
uint32_t flagsSaid(const owner::Command& command) {
  switch (command.kind) {
    case CommandKind::putStart:
    case CommandKind::putInline: return flagsOf(command.put, command.replicas);
    case CommandKind::get:
      return (command.get.hold ? kHold : 0) | (command.get.localOnly ? kLocalOnly : 0) | (command.get.placedHere ? kPlacedHere : 0) |
             (command.get.bringHere ? kBringHere : 0);
    default: return 0;
  }
}

// Of what lies before the payloads, that part is made zero again after each input; of payloads the ones that were written.
class Client {
 public:
  Client() : ring_(file()) {}
  ~Client() {
    std::memset(static_cast<void*>(&file()), 0, offsetof(ClientFile, payloads));
    for (const uint32_t slot : payloads_) std::memset(file().payloads[slot], 0, kPayloadBytes);
  }
  static ClientFile& file() {
    static Pages& pages = *new Pages(sizeof(ClientFile));
    return *reinterpret_cast<ClientFile*>(pages.data);
  }

  // Any byte of the file.
  void write(size_t at, std::string_view bytes) {
    at %= sizeof(ClientFile);
    bytes = bytes.substr(0, sizeof(ClientFile) - at);
    std::memcpy(reinterpret_cast<char*>(&file()) + at, bytes.data(), bytes.size());
    for (size_t byte = at; byte < at + bytes.size(); ++byte) {
      if (byte >= offsetof(ClientFile, payloads))
        payloads_.insert(static_cast<uint32_t>((byte - offsetof(ClientFile, payloads)) / kPayloadBytes));
    }
  }
  // As an honest client does it, but for what it says.
  void submit(uint32_t index, CommandState state, const CommandRequest& request, std::string_view payload) {
    CommandSlot& slot = file().commands[index % kCommandSlots];
    slot.request = request;
    slot.state.store(static_cast<uint32_t>(state));
    write(offsetof(ClientFile, payloads) + index % kCommandSlots * kPayloadBytes, payload.substr(0, kPayloadBytes));
    const uint32_t tail = file().ring.tail.load();
    file().ring.entries[tail % kCommandSlots].store(index);
    file().ring.tail.store(tail + 1);
  }

  bool drain(unsigned most) {
    bool any = false;
    for (; most > 0; --most) {
      uint32_t slot = UINT32_MAX;
      owner::Command command;
      const ClientRing::Next next = ring_.next(slot, command);
      if (next == ClientRing::Next::nothing) {
        FLUXON_CHECK(!ring_.more(), "there is more, and it is not given");
        break;
      }
      if (next != ClientRing::Next::command) continue;
      any = true;
      FLUXON_CHECK(slot < kCommandSlots && running_.insert(slot).second, "a slot is run twice, or is none");
      const CommandSlot& from = file().commands[slot];
      FLUXON_CHECK(command.key.size() <= kMaxKeyBytes && command.extra.size() <= kPayloadBytes - kMaxKeyBytes, "lengths of a command");
      FLUXON_CHECK(command.key.size() == from.request.keyBytes && command.extra.size() == from.request.extraBytes, "other lengths");
      FLUXON_CHECK(command.key == std::string_view(file().payloads[slot], command.key.size()), "another key");
      FLUXON_CHECK(command.extra == std::string_view(file().payloads[slot] + command.key.size(), command.extra.size()), "another value");
      FLUXON_CHECK(command.valueBytes == from.request.valueBytes && command.slotRef == from.request.slotRef &&
                       command.lease.value == from.request.lease && command.deadline.ns == from.request.deadlineNs,
                   "another command");
      const bool abandoned = from.state.load() == static_cast<uint32_t>(CommandState::abandoned);
      FLUXON_CHECK(abandoned ? command.kind == CommandKind::abort : static_cast<uint32_t>(command.kind) == from.request.kind,
                   "another kind");
      FLUXON_CHECK(flagsSaid(command) == from.request.flags, "other flags, or some that the kind does not have");
    }
    return any;
  }

  void answer(Input& in) {
    if (running_.empty()) return;
    const auto at = std::next(running_.begin(), in.take<uint8_t>() % static_cast<ptrdiff_t>(running_.size()));
    const uint32_t index = *at;
    running_.erase(at);
    owner::Answer answer;
    answer.hold = in.take<uint8_t>() % 2;
    answer.slotRef = 1 + in.take<uint16_t>();
    answer.payload = std::string(in.take<uint16_t>() % (kPayloadBytes + 100), 'p');
    answer.node = std::string(in.take<uint8_t>() % 50, 'n');
    payloads_.insert(index);
    CommandSlot& slot = file().commands[index];
    const uint32_t before = slot.state.load();
    const bool heard = ring_.answer(index, answer);
    FLUXON_CHECK(heard == (before == static_cast<uint32_t>(CommandState::submitted)), "an answer is heard by nobody, or is not heard");
    FLUXON_CHECK(slot.state.load() == static_cast<uint32_t>(heard ? CommandState::completed : CommandState::free), "state of the slot");
    FLUXON_CHECK(slot.answer.payloadUsed <= kPayloadBytes && slot.answer.node[sizeof slot.answer.node - 1] == 0, "lengths of an answer");
    FLUXON_CHECK(slot.answer.held <= kHeldWords && (answer.hold || slot.answer.held == 0), "a held word that is none");
    if (slot.answer.held == 0) return;
    const uint32_t word = slot.answer.held - 1;
    FLUXON_CHECK(file().held.words[word].load() == (heard ? answer.slotRef : 0), "the held word names another slot");
    FLUXON_CHECK(file().held.highWater.load() > word, "a held word that scans do not see");
  }

  void scan(Input& in) {
    std::vector<uint64_t> refs;
    for (uint8_t n = in.take<uint8_t>() % 8; n > 0; --n) refs.push_back(in.take<uint16_t>());
    std::set<uint64_t> there;
    const auto look = [&](uint32_t highWater, const Word* words, uint32_t count) {
      for (uint32_t i = 0; i < std::min(highWater, count); ++i) there.insert(words[i].load());
    };
    for (const HazardShard& shard : file().hazards) look(shard.highWater.load(), shard.words, kHazardsPerShard);
    look(file().held.highWater.load(), file().held.words, kHeldWords);
    const std::vector<bool> held = scanHazards({&file()}, refs);
    FLUXON_CHECK(held.size() == refs.size(), "a scan that forgets");
    for (size_t i = 0; i < refs.size(); ++i)
      FLUXON_CHECK(held[i] == (refs[i] != 0 && there.count(refs[i]) != 0), "a hazard is not seen, or none is");
    FLUXON_CHECK(ring_.held() <= kHeldWords, "held words");
  }

  void touches() {
    constexpr uint32_t kMost = 3000;
    uint32_t count = 0;
    const uint32_t said = ring_.takeTouches(kMost, [&](uint32_t) { ++count; });
    FLUXON_CHECK(count == said && count <= kMost, "more touches than were asked for");
  }

 private:
  std::set<uint32_t> payloads_, running_;
  ClientRing ring_;
};

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  Client client;
  bool any = false;
  while (!in.empty()) {
    switch (static_cast<Act>(in.take<uint8_t>() % static_cast<uint8_t>(Act::acts))) {
      case Act::write: {
        const size_t at = in.take<uint32_t>();
        client.write(at, in.take(in.take<uint8_t>()));
        break;
      }
      case Act::submit: {
        const uint32_t index = in.take<uint8_t>();
        const auto state = static_cast<CommandState>(in.take<uint8_t>());
        const auto request = in.take<CommandRequest>();
        client.submit(index, state, request, in.take(in.take<uint8_t>()));
        break;
      }
      case Act::drain: any |= client.drain(in.take<uint8_t>()); break;
      case Act::answer: client.answer(in); break;
      case Act::scan: client.scan(in); break;
      default: client.touches();
    }
  }
  return any;
}

std::vector<std::string> seeds() {
  const auto act = [](Act what, std::string_view more = {}) { return std::string(1, static_cast<char>(what)).append(more); };
  const auto submit = [&](uint8_t slot, CommandState state, CommandKind kind, const std::string& key, const std::string& extra) {
    const bool puts = kind == CommandKind::putStart || kind == CommandKind::putInline;
    const CommandRequest request{static_cast<uint32_t>(kind),
                                 puts                       ? kPutFlags
                                 : kind == CommandKind::get ? kHold
                                                            : 0,
                                 static_cast<uint32_t>(key.size()),
                                 static_cast<uint32_t>(extra.size()),
                                 100,
                                 slotRef(3, 4),
                                 5,
                                 6};
    const char head[2] = {static_cast<char>(slot), static_cast<char>(state)};
    return act(Act::submit, std::string(head, 2)).append(bytesOf(request)) + static_cast<char>(key.size() + extra.size()) + key + extra;
  };
  const auto write = [&](size_t offset, std::string_view bytes) {
    return act(Act::write, bytesOf(static_cast<uint32_t>(offset))) + static_cast<char>(bytes.size()) + std::string(bytes);
  };
  const std::string drain = act(Act::drain, "\x10"), scan = act(Act::scan, std::string("\2\7\0\10\0", 5));
  const std::string answer = act(Act::answer, std::string("\0\1\6\0\x20\0\4", 7));
  const uint64_t word = 7;
  const uint32_t high = 3;
  const std::string get = submit(2, CommandState::submitted, CommandKind::get, "key", "");
  return {get + drain + answer + scan + get + drain,
          submit(0, CommandState::submitted, CommandKind::putInline, "key", "value") +
              submit(1, CommandState::abandoned, CommandKind::commit, "", "") +
              submit(5, CommandState::abandoned, CommandKind::get, "k", "") + drain + answer + answer,
          write(offsetof(ClientFile, hazards), bytesOf(high)) + write(offsetof(ClientFile, hazards) + 64 + 16, bytesOf(word)) + scan + get +
              drain,
          write(offsetof(ClientFile, touches), bytesOf(word)) + act(Act::touches) + get + drain,
          get + write(offsetof(ClientFile, ring), bytesOf(high)) + drain};
}

}  // namespace fluxon::fuzz
