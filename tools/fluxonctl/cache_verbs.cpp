#include "cache_verbs.h"

#include <fluxon/fluxon.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "base/hash.h"
#include "base/size.h"
#include "shm/client_format.h"
#include "shm/paths.h"
#include "shm_files.h"
#include "value_io.h"

namespace fluxon::ctl {
namespace {

constexpr uint64_t kPage = 1000;            // keys of a listing at a time
constexpr uint64_t kUnknownSegment = kGiB;  // of stdin that is read to a node whose segment cannot be asked

Error asError(const Exception& exception) {
  // what() begins with the sentence of the code, which message() puts there again.
  const Code code = codeFromWire(static_cast<uint32_t>(exception.code()));
  const std::string what = exception.what(), start = std::string(sentence(code)) + ": ";
  return {code, what.starts_with(start) ? what.substr(start.size()) : what == sentence(code) ? "" : what};
}

struct Connection {
  Client client;
  std::string node;
};

// To --node, else to the first node of this host whose owner runs.
Result<Connection> connect(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return paths.error();
  Error error{Code::unavailable, "no owner of cluster " + options.cluster + " runs on this host"};
  const Result<std::vector<std::string>> nodes = options.node.empty() ? nodesOf(paths.value()) : Result(std::vector{options.node});
  if (!nodes) return nodes.error();
  for (const std::string& node : nodes.value()) {
    try {
      return Connection{Client(ConnectOptions{.cluster = options.cluster,
                                              .node = node,
                                              .shmRoot = paths.value().root,
                                              .name = "fluxonctl",
                                              .timeoutMs = options.callTimeoutMs()}),
                        node};
    } catch (const Exception& exception) {
      error = asError(exception);
      if (error.code != Code::unavailable) return error;
    }
  }
  const std::string running = runningNodes(paths.value());
  error.detail += running.empty() ? " (start one: fluxonctl up)" : " (running here: " + running + ")";
  return error;
}

const char* sourceName(Source source) {
  switch (source) {
    case Source::local: return "local";
    case Source::neighbour: return "neighbour";
    case Source::remote: return "remote";
    case Source::ssd: return "ssd";
    case Source::remoteSsd: return "remote_ssd";
  }
  return "unknown";
}

int miss(const std::string& key) { return fail(Code::miss, std::string(sentence(Code::miss)) + ": " + quoted(key)); }

std::vector<Cell> keyAnd(const std::string& key, std::initializer_list<Cell> cells) {
  std::vector<Cell> row = keyCells(key);
  row.insert(row.end(), cells);
  return row;
}

// A value whose length nobody knows: at most what the segment of the node can hold.
Result<std::string> readValue(const Input& input, const Options& options, const std::string& node) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return paths.error();
  const Result<DirectoryFile> directory = DirectoryFile::open(paths.value(), node);
  if (directory) return input.readAll(directory.value().segmentBytes(), "the segment of node " + node);
  return input.readAll(kUnknownSegment, "the segment of node " + node + " cannot be seen; a regular file may be larger");
}

int put(Connection& connection, const Options& options, const Input& input) {
  Client& client = connection.client;
  const std::string& key = options.keys.front();
  const PutOptions how{options.rejectIfExists ? OnExisting::reject : OnExisting::replace,
                       options.rejectIfInFlight ? OnInFlight::reject : OnInFlight::allow, options.lease, options.callTimeoutMs(),
                       options.replicas};
  PutResult result;
  uint64_t bytes = input.size();
  if (bytes > shm::kInlineValueBytes) {
    std::optional<Grant> grant = client.putStart(key, bytes, how, &result.outcome);
    if (grant) {
      if (const Error error = input.fill(grant->bytes()); !error.ok()) return fail(error);
      result = std::move(*grant).commit(options.callTimeoutMs());
    }
  } else {
    const Result<std::string> value = readValue(input, options, connection.node);
    if (!value) return fail(value.error());
    bytes = value.value().size();
    result = client.put(key, std::string_view(value.value()), how);
  }
  if (result.outcome == PutOutcome::exists) return fail(Code::exists, std::string(sentence(Code::exists)) + ": " + quoted(key));
  if (result.outcome == PutOutcome::inFlight) return fail(Code::inFlight, std::string(sentence(Code::inFlight)) + ": " + quoted(key));
  const PutId putId(result.putId);
  if (options.format == Format::json) {
    Rows(Format::json).add(keyAnd(key, {version(putId), number("bytes", bytes), number("replicas", result.replicas)}));
  } else {
    const std::string on = ", on " + std::to_string(result.replicas) + " of " + std::to_string(options.replicas) + " nodes";
    emit("put_id " + toString(putId) + ", " + std::to_string(bytes) + " bytes" + (options.replicas > 1 ? on : "") + "\n");
  }
  return 0;
}

int get(Client& client, const Options& options) {
  const std::string& key = options.keys.front();
  const std::optional<Holder> holder = client.get(key, options.callTimeoutMs());
  if (!holder) return miss(key);
  const bool toStdout = options.file.empty() || options.file == "-";
  Error error;
  if (!toStdout) error = replaceFile(options.file, holder->bytes());
  if (toStdout && options.format == Format::table) error = writeAll(STDOUT_FILENO, holder->bytes(), "stdout");
  if (!error.ok()) return fail(error);
  if (options.format == Format::table) return 0;
  std::vector<Cell> row =
      keyAnd(key, {version(PutId(holder->putId())), number("bytes", holder->size()), text("source", sourceName(holder->source()))});
  row.push_back(toStdout ? text("value_base64", base64(holder->text().data(), holder->size())) : text("file", options.file));
  Rows(Format::json).add(row);
  return 0;
}

constexpr size_t kLongestName = 255;  // of a file, in bytes

// A key as the name of a file: never a path, never hidden. A name that would be too long is cut, and ends with ~ and the key's hash.
std::string fileName(const std::string& key) {
  const auto isPlain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  char hash[sizeof "~0123456789abcdef"];
  std::snprintf(hash, sizeof hash, "~%016llx", static_cast<unsigned long long>(keyHash(key)));
  std::string name, cut;
  for (const char c : key) {
    char escaped[4];
    std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned char>(c));
    name += isPlain(c) && (c != '.' || !name.empty()) ? std::string(1, c) : escaped;
    if (name.size() <= kLongestName - (sizeof hash - 1)) cut = name;
  }
  return name.size() <= kLongestName ? name : cut + hash;
}

char endOfKeys(const Options& options) { return options.zeroEnded ? '\0' : '\n'; }

// The next key that stdin names.
bool nextKey(const Options& options, std::string& key) { return bool(std::getline(std::cin, key, endOfKeys(options))); }

// Goes on after a key that is none: which one is said, and what the whole ends with.
class EachKey {
 public:
  template <class Body>
  void visit(const std::string& key, Body body) {
    ++number_;
    try {
      body(key);
    } catch (const Exception& exception) {
      if (exception.code() != FLUXON_INVALID_KEY) throw;
      const Error error = asError(exception);
      complain("key " + std::to_string(number_) + ": " + error.message());
      refused_ = sysexit(error.code);
    }
  }
  int status(int otherwise) const { return refused_ != 0 ? refused_ : otherwise; }

 private:
  uint64_t number_ = 0;
  int refused_ = 0;
};

// One client for all keys: after the first it is attached, and local hits cost what the library's do.
int read(Client& client, const Options& options) {
  int status = 0;
  EachKey each;
  Rows rows(options.format);
  for (std::string key; nextKey(options, key);) {
    std::optional<Holder> holder;
    uint64_t ns = 0;
    bool asked = false;
    each.visit(key, [&](const std::string& wanted) {
      const Time begun = bootTime();
      holder = client.get(wanted, options.callTimeoutMs());
      ns = static_cast<uint64_t>((bootTime() - begun).ns);
      asked = true;
    });
    if (!holder) {
      if (asked) status = miss(key);
      continue;
    }
    std::vector<Cell> row = keyAnd(key, {number("bytes", holder->size()), text("source", sourceName(holder->source())), number("ns", ns)});
    if (!options.file.empty()) {
      const std::string path = options.file + "/" + fileName(key);
      if (const Error error = replaceFile(path, holder->bytes()); !error.ok()) return fail(error);
      row.push_back(jsonOnly(text("file", path)));
    }
    rows.add(row);
    rows.flush();
    if (const int failed = finishOutput(0); failed != 0) return failed;
  }
  return each.status(status);
}

int one(const Options& options, const Cell& cell) {
  if (options.format == Format::json) {
    Rows(Format::json).add({cell});
  } else {
    emit(cell.human + "\n");
  }
  return 0;
}

int removeByPrefix(Client& client, const Options& options) {
  uint64_t deleted = 0;
  std::string after;
  for (std::vector<std::string> keys(1); !keys.empty();) {
    keys.clear();
    client.list(
        options.prefix, after, kPage,
        [&](const ListedKey& listed) {
          keys.emplace_back(listed.key);
          return true;
        },
        options.callTimeoutMs());
    for (const std::string& key : keys) deleted += client.remove(key, options.callTimeoutMs());
    if (!keys.empty()) after = keys.back();
  }
  return one(options, number("deleted", deleted));
}

int remove(Client& client, const Options& options) {
  if (options.byPrefix) return removeByPrefix(client, options);
  int status = 0;
  const auto removeOne = [&](const std::string& key) {
    if (client.remove(key, options.callTimeoutMs())) {
      if (options.format == Format::json) Rows(Format::json).add(keyAnd(key, {flag("deleted", true)}));
    } else {
      status = miss(key);
    }
  };
  EachKey each;
  for (const std::string& key : options.keys) each.visit(key, removeOne);
  for (std::string key; options.keysFromStdin && nextKey(options, key);) each.visit(key, removeOne);
  return each.status(status);
}

int stat(Client& client, const Options& options) {
  const std::string& key = options.keys.front();
  const std::optional<Stat> found = client.stat(key, options.callTimeoutMs());
  if (!found) return miss(key);
  std::vector<std::string> nodes;
  std::istringstream lines(found->nodes);
  for (std::string line; std::getline(lines, line);) nodes.push_back(line);
  const std::vector<Cell> row =
      keyAnd(key, {version(PutId(found->putId)), number("bytes", found->length), id("lease", found->lease), list("nodes", nodes)});
  Rows(options.format).add(row);
  return 0;
}

int exists(Client& client, const Options& options) {
  const bool found = client.exists(options.keys.front(), options.callTimeoutMs());
  if (options.format == Format::json) {
    Rows(Format::json).add(keyAnd(options.keys.front(), {flag("exists", found)}));
  } else {
    emit(found ? "yes\n" : "no\n");
  }
  return sysexit(found ? Code::ok : Code::miss);
}

// The key alone, as it is.
int listPlain(const std::string& key, const Options& options) {
  if (key.find(endOfKeys(options)) == std::string::npos) {
    emit(key + endOfKeys(options));
    return 0;
  }
  const std::string accepted = options.zeroEnded ? "--json" : "-0, or --json";
  return fail({Code::invalidKey, quoted(key) + " has the byte that ends a key here (accepted: " + accepted + ")"});
}

int list(Client& client, const Options& options) {
  Rows rows(options.format);
  const bool plain = options.keysOnly && options.format == Format::table;
  int status = 0;
  bool found = false;
  std::string after = options.after;
  for (uint64_t left = options.limit == 0 ? UINT64_MAX : options.limit; left > 0;) {
    const uint64_t wanted = std::min(left, kPage);
    uint64_t got = 0;
    client.list(
        options.prefix, after, wanted,
        [&](const ListedKey& listed) {
          after = listed.key;
          ++got;
          found = true;
          if (plain) {
            if (const int failed = listPlain(after, options); failed != 0) status = failed;
            return true;
          }
          std::vector<Cell> row{version(PutId(listed.putId)), number("bytes", listed.length)};
          for (Cell& cell : keyCells(after)) row.push_back(std::move(cell));
          rows.add(row);
          return true;
        },
        options.callTimeoutMs());
    rows.flush();
    if (got < wanted) break;
    left -= got;
  }
  if (!found) complain("no keys");
  return status;
}

int run(Connection& connection, const Options& options, const Input& input) {
  Client& client = connection.client;
  const uint32_t timeout = options.callTimeoutMs();
  switch (options.verb) {
    case Verb::put: return put(connection, options, input);
    case Verb::get: return get(client, options);
    case Verb::read: return read(client, options);
    case Verb::remove: return remove(client, options);
    case Verb::stat: return stat(client, options);
    case Verb::exists: return exists(client, options);
    case Verb::list: return list(client, options);
    case Verb::count: return one(options, number("count", client.countPrefix(options.prefix, timeout)));
    case Verb::leaseGrant: return one(options, id("lease", client.leaseGrant(options.ttlMs, timeout)));
    case Verb::leaseKeepAlive: client.leaseKeepAlive(options.lease, timeout); break;
    case Verb::leaseRevoke: client.leaseRevoke(options.lease, timeout); break;
    default: break;
  }
  return options.format == Format::json ? one(options, id("lease", options.lease)) : 0;
}

}  // namespace

int cacheVerb(const Options& options) {
  Result<Input> input = options.verb == Verb::put ? Input::open(options.file) : Result<Input>(Input());
  if (!input) return fail(input.error());
  Result<Connection> connection = connect(options);
  if (!connection) return fail(connection.error());
  try {
    return run(connection.value(), options, input.value());
  } catch (const Exception& exception) {
    Error error = asError(exception);
    if (error.code == Code::noLease && error.detail.empty()) error.detail = std::to_string(options.lease);
    return fail(error);
  }
}

}  // namespace fluxon::ctl
