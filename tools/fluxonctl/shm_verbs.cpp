#include "shm_verbs.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "shm_files.h"
#include "ssd_verbs.h"

namespace fluxon::ctl {
namespace {

// Files that were read and files that were not.
class Tally {
 public:
  void sound() { ++sound_; }
  void damaged(const Error& error) {
    complain(error.message() + " (skipped)");
    last_ = error.code;
  }
  // 0 if anything was sound.
  int status() const { return sound_ > 0 || last_ == Code::ok ? 0 : sysexit(last_); }

 private:
  uint64_t sound_ = 0;
  Code last_ = Code::ok;
};

template <class Each>
void eachClient(const shm::Paths& paths, const std::string& node, Mappers& mappers, Tally& tally, Each each) {
  for (const ClientId id : clientsOf(paths, node)) {
    Result<std::optional<ClientCopy>> client = readClient(paths, node, id, mappers);
    if (!client) {
      tally.damaged(client.error());
    } else if (client.value()) {
      each(*client.value());
    }
  }
}

std::vector<Cell> clientCells(const std::string& node, const ClientCopy& client) {
  return {text("node", node),
          number("client", client.id.value),
          {"name", quoted(client.name), text("", client.name).json},
          pidCell(client.pid),
          flag("alive", client.alive)};
}

Cell unknown(const std::string& name) { return {name, "?", "null"}; }

// Slots named by hazard words and held words, each with the number of words.
std::map<uint64_t, uint64_t> hazardsOf(const shm::ClientFile& file) {
  std::map<uint64_t, uint64_t> refs;
  const auto add = [&](const shm::Half& highWater, const shm::Word* words, uint32_t count) {
    const uint32_t high = std::min(highWater.load(std::memory_order_relaxed), count);
    for (uint32_t i = 0; i < high; ++i) {
      if (const uint64_t ref = words[i].load(std::memory_order_relaxed)) ++refs[ref];
    }
  };
  for (const shm::HazardShard& shard : file.hazards) add(shard.highWater, shard.words, shm::kHazardsPerShard);
  add(file.held.highWater, file.held.words, shm::kHeldWords);
  return refs;
}

// Slots that clients have been granted and have not committed or given up, by client.
std::map<ClientId, std::vector<uint32_t>> grantsOf(const DirectoryFile& directory, Tally& tally) {
  std::map<ClientId, std::vector<uint32_t>> grants;
  const Error error = directory.forEach([&](uint32_t index, const SlotCopy& slot) {
    if (slot.state() == shm::SlotState::granted) grants[ClientId(slot.writer)].push_back(index);
  });
  if (!error.ok()) tally.damaged(error);
  return grants;
}

// What the slot of a hazard, or of a grant, holds; its key comes last.
std::vector<Cell> pinnedCells(const DirectoryFile* directory, const ClientCopy& client, uint64_t ref) {
  std::optional<DirectoryFile::Entry> entry;
  std::string state = "unknown";
  if (directory && directory->incarnation() != client.incarnation) {
    state = "stale";  // the slot belonged to an earlier life of the owner
  } else if (directory) {
    entry = directory->entry(shm::slotOfRef(ref));
    state = !entry ? "invalid" : entry->slot.generation() != shm::generationOfRef(ref) ? "stale" : toString(entry->slot.state());
    if (state == "stale") entry.reset();
  }
  std::vector<Cell> cells{number("slot", shm::slotOfRef(ref)), number("generation", shm::generationOfRef(ref)), text("state", state)};
  if (!entry) {
    for (const char* name : {"put_id", "bytes", "offset", "key"}) cells.push_back(unknown(name));
    return cells;
  }
  const SlotCopy& slot = entry->slot;
  cells.insert(cells.end(), {version(PutId(slot.putId)), number("bytes", slot.payloadBytes), number("offset", slot.offset)});
  for (Cell& cell : keyCells(entry->key)) cells.push_back(std::move(cell));
  return cells;
}

Cell mappedBy(const ClientCopy& client) {
  std::string pids;
  for (const uint64_t pid : client.mappedBy) pids += (pids.empty() ? "" : ",") + std::to_string(pid);
  return {"mapped_by", pids.empty() ? "-" : pids, "[" + pids + "]"};
}

int pins(const shm::Paths& paths, const std::vector<std::string>& nodes, Format format) {
  Rows rows(format);
  Tally tally;
  Mappers mappers;
  for (const std::string& node : nodes) {
    const Result<DirectoryFile> directory = DirectoryFile::open(paths, node);
    if (directory) tally.sound();
    if (!directory) tally.damaged(directory.error());
    std::map<ClientId, std::vector<uint32_t>> grants;
    if (directory) grants = grantsOf(directory.value(), tally);
    eachClient(paths, node, mappers, tally, [&](const ClientCopy& client) {
      tally.sound();
      const auto show = [&](uint64_t ref, uint64_t words) {
        std::vector<Cell> row = clientCells(node, client);
        row.push_back(mappedBy(client));
        row.push_back(jsonOnly(number("words", words)));
        for (Cell& cell : pinnedCells(directory ? &directory.value() : nullptr, client, ref)) row.push_back(std::move(cell));
        rows.add(row);
      };
      for (const auto& [ref, words] : hazardsOf(*client.file)) show(ref, words);
      for (const uint32_t slot : grants[client.id]) {
        const std::optional<DirectoryFile::Entry> entry = directory.value().entry(slot);
        const bool still = entry && entry->slot.state() == shm::SlotState::granted && entry->slot.writer == client.id.value;
        if (still) show(shm::slotRef(slot, entry->slot.generation()), 0);
      }
    });
  }
  rows.flush();
  if (rows.empty() && tally.status() == 0) complain("no holders");
  return tally.status();
}

// "hitBytes" as "hit_bytes".
std::string snakeCase(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') out += '_';
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Empty: nonsense.
std::vector<Cell> ringCells(const std::string& node, const ClientCopy& client, std::optional<uint64_t> grants) {
  const shm::ClientFile& file = *client.file;
  const uint32_t tail = file.ring.tail.load(std::memory_order_relaxed), head = file.ring.head.load(std::memory_order_relaxed);
  uint64_t states[5] = {};
  for (const shm::CommandSlot& command : file.commands) ++states[std::min(command.state.load(std::memory_order_relaxed), 4u)];
  if (tail - head > shm::kCommandSlots || states[4] > 0) return {};

  std::vector<Cell> row = clientCells(node, client);
  row.push_back(jsonOnly(flag("detached", file.header.detached.load(std::memory_order_relaxed) != 0)));
  static constexpr const char* kStates[] = {"free", "submitted", "completed", "abandoned"};
  row.insert(row.end(), {number("head", head), number("tail", tail)});
  for (int i = 0; i < 4; ++i) row.push_back(number(kStates[i], states[i]));
  row.push_back(grants ? number("grants", *grants) : unknown("grants"));
#define FLUXON_COUNT(counter, text)                                                                            \
  {                                                                                                            \
    uint64_t sum = 0;                                                                                          \
    for (const shm::CounterShard& shard : file.counters) sum += shard.counter.load(std::memory_order_relaxed); \
    const std::string field = snakeCase(#counter);                                                             \
    row.push_back(field.ends_with("_bytes") ? size(field, sum) : number(field, sum));                          \
  }
  FLUXON_CLIENT_COUNTERS(FLUXON_COUNT)
#undef FLUXON_COUNT
  return row;
}

int rings(const shm::Paths& paths, const std::vector<std::string>& nodes, Format format) {
  Rows rows(format);
  Tally tally;
  Mappers mappers;
  for (const std::string& node : nodes) {
    const Result<DirectoryFile> directory = DirectoryFile::open(paths, node);
    std::map<ClientId, std::vector<uint32_t>> grants;
    if (directory) grants = grantsOf(directory.value(), tally);
    eachClient(paths, node, mappers, tally, [&](const ClientCopy& client) {
      const std::optional<uint64_t> count = directory ? std::optional<uint64_t>(grants[client.id].size()) : std::nullopt;
      const std::vector<Cell> row = ringCells(node, client, count);
      if (!row.empty()) return tally.sound(), rows.add(row);
      tally.damaged({Code::corrupt, "client-" + std::to_string(client.id.value) + " of node " + node + ": its ring makes no sense"});
    });
  }
  rows.flush();
  if (rows.empty() && tally.status() == 0) complain("no clients");
  return tally.status();
}

int statLocal(const shm::Paths& paths, const std::vector<std::string>& nodes, const Options& options) {
  const std::string& key = options.keys.front();
  Rows rows(options.format);
  Tally tally;
  bool found = false;
  for (const std::string& node : nodes) {
    const Result<DirectoryFile> directory = DirectoryFile::open(paths, node);
    if (!directory) {
      tally.damaged(directory.error());
      continue;
    }
    const bool serving = directory.value().ownersNow().ns < directory.value().leaseUntilNs();
    const Error error = directory.value().forEach([&, hash = keyHash(key)](uint32_t index, const SlotCopy& seen) {
      if (seen.hash != hash) return;
      const std::optional<DirectoryFile::Entry> entry = directory.value().entry(index);
      if (!entry || entry->key != key || entry->slot.state() == shm::SlotState::free) return;
      found = true;
      const SlotCopy& slot = entry->slot;
      std::vector<Cell> row{text("node", node),
                            flag("serving", serving),
                            number("slot", index),
                            number("generation", slot.generation()),
                            text("state", toString(slot.state())),
                            version(PutId(slot.putId)),
                            number("bytes", slot.payloadBytes),
                            number("offset", slot.offset),
                            jsonOnly(number("writer", slot.writer)),
                            jsonOnly(number("operation", slot.operation))};
      for (Cell& cell : keyCells(key)) row.push_back(std::move(cell));
      rows.add(row);
    });
    if (error.ok()) tally.sound();
    if (!error.ok()) tally.damaged(error);
  }
  rows.flush();
  if (found || tally.status() != 0) return tally.status();
  return fail(Code::miss, std::string(sentence(Code::miss)) + ": " + quoted(key));
}

int ssd(const shm::Paths& paths, const std::vector<std::string>& nodes, Format format) {
  Tally tally;
  bool shown = false;
  for (const std::string& node : nodes) {
    const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, node);
    if (!ssdd) tally.damaged(ssdd.error());
    if (!ssdd || !ssdd.value()) continue;
    tally.sound();
    if (std::exchange(shown, true) && format == Format::table) emit("\n");
    printSsdd(node, *ssdd.value(), format);
  }
  return shown || tally.status() != 0 ? tally.status() : fail(noSsdd(nodes));
}

// Nodes that are named, or all that have ended: their files go.
int clean(const shm::Paths& paths, const std::vector<std::string>& nodes, const Options& options) {
  Rows rows(options.format);
  int status = 0;
  std::string running;
  for (const std::string& node : options.nodes.empty() ? nodes : options.nodes) {
    // One whose lock cannot be seen is refused below.
    if (options.nodes.empty() && shm::LockFile::held(paths.file(node, "lock"))) {
      running += (running.empty() ? "; running: " : ", ") + node;
      continue;
    }
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
      status = fail({Code::unavailable, "no files of node " + node + " in " + paths.clusterDir()});
      continue;
    }
    uint64_t bytes = 0;
    struct stat segment {};
    if (::stat(paths.file(node, "segment").c_str(), &segment) == 0) bytes = static_cast<uint64_t>(segment.st_blocks) * 512;
    if (const Error error = shm::removeNode(paths, node); !error.ok()) {
      status = fail(error);
    } else {
      rows.add({text("node", node), size("segment_bytes", bytes), flag("removed", true)});
    }
  }
  rows.flush();
  if (rows.empty() && status == 0) complain("nothing to remove" + running);
  return status;
}

}  // namespace

int shmVerb(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const Result<std::vector<std::string>> all = nodesOf(paths.value());
  if (!all) return fail(all.error());
  std::vector<std::string> nodes = all.value();
  if (!options.node.empty()) std::erase_if(nodes, [&](const std::string& node) { return node != options.node; });
  if (nodes.empty() && options.verb != Verb::clean) {
    const std::string running = runningNodes(paths.value());
    return fail({Code::unavailable, "no files of " + (options.node.empty() ? std::string("any node") : "node " + options.node) + " in " +
                                        paths.value().clusterDir() +
                                        (running.empty() ? " (start one: fluxonctl up)" : " (running here: " + running + ")")});
  }
  switch (options.verb) {
    case Verb::pins: return pins(paths.value(), nodes, options.format);
    case Verb::rings: return rings(paths.value(), nodes, options.format);
    case Verb::clean: return clean(paths.value(), nodes, options);
    case Verb::ssd: return ssd(paths.value(), nodes, options.format);
    case Verb::scrub: return scrub(paths.value(), nodes, options);
    default: return statLocal(paths.value(), nodes, options);
  }
}

}  // namespace fluxon::ctl
