// fluxonctl against real daemons: what it prints, what it exits with, and what it can still tell when they are dead.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "cluster.h"
#include "ssd/ssdd_format.h"
#include "texts.h"

using namespace fluxon::test;
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {

std::string shellQuoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

Ended ctl(const Cluster& cluster, const std::string& arguments, const std::string& before = "") {
  return execute(before + kCtl + " --config " + cluster.config() + " " + arguments);
}

std::string hex(const std::string& bytes) {
  std::string out;
  char digits[3];
  for (const char c : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    out += digits;
  }
  return out;
}

// Runs a Python expression of `o` over lines of JSON objects and gives what it prints, a line each. Every line must be an object.
std::string jsonValues(const Cluster& cluster, const std::string& lines, const std::string& expression) {
  const std::string path = cluster.folder() + "/lines.json";
  write(path, lines);
  const Ended ended =
      execute("PYTHONIOENCODING=utf-8 /usr/bin/python3 -c " +
              shellQuoted("import json,sys,base64\n"
                          "def strict(pairs):\n assert len(dict(pairs)) == len(pairs), pairs\n return dict(pairs)\n"
                          "for l in open(sys.argv[1],'rb').read().split(b'\\n')[:-1]:\n"
                          " o=json.loads(l.decode('utf-8'), object_pairs_hook=strict)\n assert isinstance(o,dict)\n print((" +
                          expression + "))") +
              " " + path);
  INFO(lines);
  CHECK_MESSAGE(ended.status == 0, ended.err);
  return ended.out;
}

const char* const kKeyHex = "(base64.b64decode(o['key_base64']) if 'key_base64' in o else o['key'].encode()).hex()";

// The Prometheus text format, as far as a scraper must understand it.
struct Sample {
  std::string name, labels;
  double value;
};
struct Page {
  std::vector<Sample> samples;
  std::map<std::string, std::string> types;

  double sum(const std::string& name, const std::string& label = "") const {
    double total = 0;
    bool found = false;
    for (const Sample& sample : samples) {
      if (sample.name == name && has(sample.labels, label)) total += sample.value, found = true;
    }
    CHECK_MESSAGE(found, name);
    return total;
  }
};

Page parsePage(const std::string& text) {
  static const std::regex kSample(R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+))re");
  Page page;
  std::set<std::string> helped, seen;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    std::istringstream words(line);
    std::string hash, word, name, rest;
    if (line.starts_with("#")) {
      words >> hash >> word >> name >> rest;
      if (word == "process") seen.clear(), helped.clear();  // of fluxonctl: the next process
      if (word == "HELP") CHECK(helped.insert(name).second);
      if (word == "TYPE") CHECK((rest == "gauge" || rest == "counter" || rest == "histogram"));
      if (word == "TYPE") page.types[name] = rest;
      CHECK((word == "HELP" || word == "TYPE" || word == "process"));
      continue;
    }
    std::smatch match;
    const bool good = std::regex_match(line, match, kSample);
    CHECK(good);
    if (!good) continue;
    CHECK(seen.insert(match[1].str() + match[2].str()).second);
    size_t used = 0;
    const double value = match[4] == "+Inf" ? INFINITY : std::stod(match[4], &used);
    CHECK(used == match[4].str().size());
    name = match[1];
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      if (name.ends_with(suffix) && page.types.count(name.substr(0, name.size() - std::string(suffix).size())))
        name.resize(name.size() - std::string(suffix).size());
    }
    CHECK(page.types.count(name) == 1);
    CHECK(helped.count(name) == 1);
    if (page.types[name] == "counter") CHECK(name.ends_with("_total"));
    page.samples.push_back({match[1], match[3], value});
  }
  return page;
}

// No value is negative or infinite, no part larger than the whole.
void checkBounds(const Page& page) {
  for (const Sample& sample : page.samples) {
    INFO(sample.name << "{" << sample.labels << "}");
    CHECK(std::isfinite(sample.value));
    CHECK(sample.value >= 0);
    CHECK(sample.value < 1e15);
  }
  for (const Sample& sample : page.samples) {
    if (!sample.name.starts_with("fluxon_master_segment_") || !sample.name.ends_with("_bytes")) continue;
    INFO(sample.name << "{" << sample.labels << "}");
    CHECK(sample.value <= page.sum("fluxon_master_segment_capacity_bytes", sample.labels));
  }
}

void checkNothingInFlight(const Page& page) {
  for (const char* name : {"fluxon_master_puts_inflight", "fluxon_master_segment_inflight_bytes", "fluxon_master_segment_retired_bytes",
                           "fluxon_master_puts_waiting", "fluxon_owner_grants", "fluxon_owner_ring_holds"}) {
    CHECK_MESSAGE(page.sum(name) == 0, std::string(name));
  }
  for (const char* state : {"granted", "pending", "reclaiming", "retired"})
    CHECK_MESSAGE(page.sum("fluxon_owner_directory_slots", "\""s + state + "\"") == 0, state);
}

}  // namespace

TEST_CASE("files put from a path or from stdin come back byte for byte, whatever their size") {
  Cluster cluster({.owner = "segment_size = \"128MiB\"\n"});
  const std::string in = cluster.folder() + "/in", out = cluster.folder() + "/out";
  for (const size_t size : {0, 1, 4095, 4096, 4097, 65'536, 1'000'003, 20 << 20}) {
    CAPTURE(size);
    const std::string value = valueOf(size, size), bytes = ", " + std::to_string(size) + " bytes\n";
    write(in, value);
    const Ended path = ctl(cluster, "put from/path " + in);
    CHECK(path.status == 0);
    CHECK(path.out.ends_with(bytes));
    CHECK(ctl(cluster, "get from/path -o " + out).status == 0);
    CHECK((read(out) == value));
    CHECK(ctl(cluster, "put from/stdin < " + in).out.ends_with(bytes));
    CHECK((ctl(cluster, "get from/stdin").out == value));
    CHECK(ctl(cluster, "put from/pipe -", "cat " + in + " | ").out.ends_with(bytes));
    CHECK((ctl(cluster, "get from/pipe").out == value));
  }
  const Ended json = ctl(cluster, "--json get from/pipe -o " + out);
  CHECK(jsonValues(cluster, json.out, "o['bytes']") == std::to_string(20 << 20) + "\n");
  write(in, valueOf(3, 1000));
  ctl(cluster, "put small " + in);
  CHECK(jsonValues(cluster, ctl(cluster, "--json get small").out, "base64.b64decode(o['value_base64']).hex()") ==
        hex(valueOf(3, 1000)) + "\n");
}

TEST_CASE("a file that cannot be read or written is an error, and neither key nor file is changed") {
  Cluster cluster;
  const std::string out = cluster.folder() + "/out";
  ctl(cluster, "put key", "printf value | ");
  const Ended missing = ctl(cluster, "put key " + cluster.folder() + "/none");
  CHECK(missing.status == 71);
  CHECK(oneLine(missing.err));
  CHECK(has(missing.err, "/none: No such file or directory"));
  CHECK(ctl(cluster, "put key " + cluster.folder()).status == 71);
  CHECK(ctl(cluster, "get key").out == "value");
  const Ended nowhere = ctl(cluster, "get key -o " + cluster.folder() + "/no/out");
  CHECK(nowhere.status == 71);
  CHECK(oneLine(nowhere.err));
  write(out, "old");
  CHECK(ctl(cluster, "get none -o " + out).status == 1);
  CHECK(read(out) == "old");
  CHECK(ctl(cluster, "get key > /dev/full").status == 71);
  const Ended large = ctl(cluster, "put large", "head -c 70000000 /dev/zero | ");
  CHECK(large.status == 65);
  CHECK(oneLine(large.err));
  CHECK(ctl(cluster, "exists large").status == 1);
}

TEST_CASE("an output file is replaced wherever it lies; only what /proc leads to is written to its end") {
  Cluster cluster;
  ctl(cluster, "put key", "printf value | ");
  const std::string there = cluster.root() + "/out", link = cluster.folder() + "/link", folder = cluster.root() + "/values";
  for (const std::string& path : {there, link}) {
    CAPTURE(path);
    write(there, "something that is longer than the value");
    if (path == link) fs::create_symlink(there, link);
    for (int i = 0; i < 2; ++i) CHECK(ctl(cluster, "get key -o " + path).status == 0);
    CHECK(read(there) == "value");
  }
  CHECK(fs::is_symlink(link));
  fs::create_directories(folder);
  for (int i = 0; i < 2; ++i) CHECK(ctl(cluster, "read -o " + folder, "echo key | ").status == 0);
  CHECK(read(folder + "/key") == "value");
  const std::string toStdout = cluster.folder() + "/stdout", out = cluster.folder() + "/out";
  fs::create_symlink("/dev/stdout", toStdout);
  for (const std::string& path : {"/dev/stdout"s, "/dev/fd/1"s, "/proc/self/fd/1"s, toStdout}) {
    CAPTURE(path);
    write(out, "before ");
    CHECK(ctl(cluster, "get key -o " + path + " >>" + out).status == 0);
    CHECK(read(out) == "before value");
  }
}

TEST_CASE("an output file that cannot be replaced is written in place: a mounted one, or one in a folder that takes no new file") {
  Cluster cluster;
  ctl(cluster, "put key", "printf value | ");
  const std::string mounted = cluster.folder() + "/mounted", behind = cluster.folder() + "/behind";
  for (const std::string& path : {mounted, behind}) write(path, "something that is longer than the value");
  const Ended mount = execute("unshare -m sh -c 'mount --bind " + behind + " " + mounted + " && " + kCtl + " --config " + cluster.config() +
                              " get key -o " + mounted + "'");
  if (has(mount.err, "unshare: ") || has(mount.err, "mount: ")) {
    MESSAGE("SKIPPED: (machine) no mount namespaces here");
  } else {
    CHECK_MESSAGE(mount.status == 0, mount.err);
    CHECK(read(behind) == "value");
  }
  const std::string closed = cluster.folder() + "/closed";
  fs::create_directories(closed);
  write(closed + "/out", "something that is longer than the value");
  // Immutable folders refuse root, too.
  if (execute("chattr +i " + closed).status != 0) {
    MESSAGE("SKIPPED: (machine) no immutable folders here");
    return;
  }
  const Ended get = ctl(cluster, "get key -o " + closed + "/out");
  execute("chattr -i " + closed);
  CHECK_MESSAGE(get.status == 0, get.err);
  CHECK(read(closed + "/out") == "value");
  CHECK(std::distance(fs::directory_iterator(closed), fs::directory_iterator()) == 1);
}

TEST_CASE("fluxonctl get -o makes what a link leads to, and replaces no link") {
  Cluster cluster;
  REQUIRE(ctl(cluster, "put key", "printf value | ").status == 0);
  const std::string folder = cluster.folder() + "/links";
  fs::create_directory(folder);
  fs::create_directory(folder + "/deeper");
  const auto get = [&](const std::string& name) { return ctl(cluster, "get key -o " + folder + "/" + name); };
  fs::create_symlink("deeper/made", folder + "/second");
  fs::create_symlink("second", folder + "/first");
  CHECK(get("first").status == 0);
  CHECK(read(folder + "/deeper/made") == "value");
  CHECK(fs::is_symlink(folder + "/first"));
  CHECK(fs::is_symlink(folder + "/second"));
  fs::create_symlink("itself", folder + "/itself");
  fs::create_symlink("nowhere/file", folder + "/lost");
  for (const auto& [name, why] : {std::pair{"itself", "Too many levels"}, {"lost", "No such file"}}) {
    const Ended ended = get(name);
    CHECK(ended.status == 71);
    CHECK_MESSAGE(ended.err.find(why) != std::string::npos, ended.err);
    CHECK(fs::is_symlink(folder + "/" + name));
  }
}

TEST_CASE("read -o takes keys of every length, each to a file of its own") {
  Cluster cluster;
  const std::string folder = cluster.folder() + "/values";
  fs::create_directories(folder);
  const auto many = [](size_t n, char c) { return std::string(n, c); };
  const std::vector<std::string> keys = {many(255, 'a'),       many(256, 'a'), many(4096, 'a'), many(4095, 'a') + "b",
                                         many(100, '/') + "x", many(85, '/'),  many(86, '/'),   "short"};
  std::string input;
  {
    auto client = cluster.client();
    for (const std::string& key : keys) client.put(key, key), input += key + "\n";
  }
  write(cluster.folder() + "/keys", input);
  const Ended ended = ctl(cluster, "--json read -o " + folder + " < " + cluster.folder() + "/keys");
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == static_cast<long>(keys.size()));
  CHECK(fs::exists(folder + "/" + std::string(255, 'a')));
  std::string expected;
  for (const std::string& key : keys) expected += hex(key) + "\n";
  CHECK(jsonValues(cluster, ended.out, "open(o['file'],'rb').read().hex()") == expected);
}

TEST_CASE("keys go from a list to read and to delete, whatever bytes they have; delete takes a prefix") {
  Cluster cluster;
  const std::string keys = cluster.folder() + "/keys", odd = "odd/";
  const std::vector<std::string> all = {odd + "-dash", odd + "a b", odd + "it's", odd + "new\nline", odd + "\xff\x80"};
  auto client = cluster.client();
  const auto putAll = [&] {
    for (const std::string& key : all) client.put(key, "x");
    for (int i = 0; i < 1500; ++i) client.put("page/" + std::to_string(i), "x");
    client.put("pag", "x");
    client.put("-", "x");
  };
  putAll();
  CHECK(ctl(cluster, "list odd/ --keys -0 >" + keys).status == 0);
  std::string expected;
  for (const std::string& key : all) expected += key + '\0';
  CHECK(read(keys) == expected);
  const Ended fetched = ctl(cluster, "--json read -0 <" + keys);
  CHECK(fetched.status == 0);
  CHECK(std::count(fetched.out.begin(), fetched.out.end(), '\n') == 5);
  const Ended lines = ctl(cluster, "list odd/ --keys >" + keys);
  CHECK(lines.status == 65);
  CHECK_MESSAGE(has(lines.err, "$'odd/new\\nline' has the byte that ends a key here (accepted: -0, or --json)"), lines.err);
  CHECK(ctl(cluster, "delete --stdin <" + keys).status == 0);
  CHECK(ctl(cluster, "list odd/ --keys -0").out == odd + "new\nline\0"s);
  CHECK(ctl(cluster, "delete --stdin -0", "printf 'odd/new\\nline\\0none\\0' | ").status == 1);
  CHECK(ctl(cluster, "count odd/").out == "0\n");
  CHECK(ctl(cluster, "delete --prefix page/").out == "1500\n");
  CHECK(ctl(cluster, "delete -").status == 0);  // a key, not stdin
  // A key that is none keeps no other back, and shows in the end.
  for (const char* key : {"slow", "fast"}) CHECK(ctl(cluster, std::string("put ") + key, "printf x | ").status == 0);
  const Ended some = ctl(cluster, "read", "printf 'slow\\n\\nnone\\nfast\\n' | ");
  CHECK(some.status == 65);
  CHECK(std::count(some.out.begin(), some.out.end(), '\n') == 3);  // a title, and two keys
  CHECK_MESSAGE(has(some.err, "fluxonctl: key 2: invalid key: 0 bytes (1 to 4096)\n"), some.err);
  const Ended gone = ctl(cluster, "delete --stdin", "printf 'slow\\n\\nfast\\n' | ");
  CHECK(gone.status == 65);
  CHECK_MESSAGE(has(gone.err, "fluxonctl: key 2: invalid key: 0 bytes (1 to 4096)\n"), gone.err);
  CHECK(ctl(cluster, "delete '' pag2").status == 65);
  CHECK(ctl(cluster, "list --keys").out == "pag\n");
  for (const char* unclear :
       {"delete", "delete pag --stdin", "delete --stdin --prefix pag", "delete --prefix ''", "delete pag -0", "list -0"}) {
    CAPTURE(unclear);
    const Ended ended = ctl(cluster, unclear);
    CHECK(ended.status == 64);
    CHECK(oneLine(ended.err));
  }
  CHECK(ctl(cluster, "count").out == "1\n");
}

TEST_CASE("a key that begins with a dash is explained, and --version that cannot be written is an error") {
  Cluster cluster;
  const Ended dashed = ctl(cluster, "get -key");
  CHECK(dashed.status == 64);
  CHECK(oneLine(dashed.err));
  CHECK_MESSAGE(has(dashed.err, "comes after --, as in: fluxonctl get -- -key)"), dashed.err);
  for (const char* what : {"--version", "--help", "get --help"}) {
    CHECK(execute(kCtl + " " + what + " >/dev/full").status == 71);
    const Ended whole = execute(kCtl + " " + what);
    CHECK(whole.status == 0);
    CHECK(whole.out.size() > 10);
    CHECK(whole.err.empty());
  }
}

TEST_CASE("input without an end is refused once it is larger than the segment, and not read on") {
  Cluster cluster;
  const std::string why = "fluxonctl: value too large: stdin has more than 64 MiB (the segment of node n0)\n";
  const Ended pipe = ctl(cluster, "put large -", "{ head -c 300000000 /dev/zero; echo head $? >&2; } | ");
  CHECK(pipe.status == 65);
  REQUIRE_MESSAGE(has(pipe.err, "head 141\n"), pipe.err);  // SIGPIPE: nobody has read it all
  CHECK_MESSAGE(has(pipe.err, why), pipe.err);
  const Ended device = ctl(cluster, "put large /dev/zero");
  CHECK(device.status == 65);
  CHECK(device.err == "fluxonctl: value too large: /dev/zero has more than 64 MiB (the segment of node n0)\n");
  CHECK(ctl(cluster, "exists large").status == 1);
}

TEST_CASE("read prints its titles once, however many keys it gets, and a row as soon as it has one") {
  Cluster cluster;
  for (const char* key : {"a", "b", "c"}) ctl(cluster, "put "s + key, "printf 123 | ");
  const Ended table = ctl(cluster, "read", "printf 'a\\nb\\nnone\\nc\\n' | ");
  CHECK(table.status == 1);
  CHECK_MESSAGE(std::regex_match(table.out, std::regex("KEY +BYTES +SOURCE +NS\n(?:[abc] +3 +local +[0-9]+\n){3}")), table.out);
  CHECK(table.err == "fluxonctl: no such key: none\n");
  const std::string keys = cluster.folder() + "/keys", rows = cluster.folder() + "/rows";
  const Ended live = execute("mkfifo " + keys + "; " + kCtl + " --config " + cluster.config() + " read < " + keys + " > " + rows +
                             " & exec 3> " + keys + "; echo a >&3; for i in $(seq 1000); do grep -q ^a " + rows +
                             " && break; sleep 0.01; done; grep -c ^a " + rows + "; exec 3>&-; wait");
  CHECK_MESSAGE(live.out == "1\n", live.err);
}

TEST_CASE("a key as a listing prints it is a word that the shell reads as the key") {
  Cluster cluster;
  const std::string all = "AZaz09_@%+=:,./-";
  std::vector<std::string> keys = {all,
                                   "~",
                                   "a b",
                                   "it's",
                                   "$HOME",
                                   "`id`",
                                   "*",
                                   "?",
                                   "[a]",
                                   "a;b",
                                   "a&b",
                                   "a|b",
                                   "<a>",
                                   "(a)",
                                   "{a,b}",
                                   "#a",
                                   "!a",
                                   "a\\b",
                                   "\"a\"",
                                   "a\t",
                                   "new\nline",
                                   "\x01"
                                   "1",
                                   "\xff"
                                   "7",
                                   "\xc3\xa9",
                                   "\xc3\xa9'\\"};
  {
    auto client = cluster.client();
    for (const std::string& key : keys) client.put(key, "x");
  }
  std::sort(keys.begin(), keys.end());
  for (const char* verb : {"list", "routes"}) {
    std::istringstream lines(ctl(cluster, verb).out);
    std::string line;
    std::getline(lines, line);
    const size_t column = line.find("KEY");
    for (const std::string& key : keys) {
      REQUIRE(std::getline(lines, line));
      const std::string word = line.substr(column);
      CAPTURE(word);
      const Ended said = execute("cd /bin; bash -c " + shellQuoted("printf %s " + word));
      CHECK(said.out == key);
      CHECK((word == key) == (key == all));
    }
  }
  CHECK(has(ctl(cluster, "get 'no ne'").err, "no such key: 'no ne'\n"));
}

TEST_CASE("a list with nothing in it says so on stderr, prints nothing and ends with 0") {
  Cluster cluster;
  for (const auto& [verb, what] :
       {std::pair{"rings", "no clients"}, {"pins", "no holders"}, {"routes", "no keys"}, {"list", "no keys"}, {"list none/", "no keys"}}) {
    CAPTURE(verb);
    for (const char* format : {"", "--json "}) {
      CAPTURE(format);
      const Ended ended = ctl(cluster, format + std::string(verb));
      CHECK(ended.status == 0);
      CHECK(ended.out.empty());
      CHECK(ended.err == "fluxonctl: "s + what + "\n");
    }
  }
}

TEST_CASE("get, delete, exists, stat and count answer with their exit status") {
  Cluster cluster;
  const Ended miss = ctl(cluster, "get nothing");
  CHECK(miss.status == 1);
  CHECK(miss.out.empty());
  CHECK(miss.err == "fluxonctl: no such key: nothing\n");
  for (const char* key : {"a", "b", "c", "d"}) ctl(cluster, "put "s + key, "printf 123 | ");
  CHECK(ctl(cluster, "exists a").out == "yes\n");
  CHECK(ctl(cluster, "count").out == "4\n");
  const Ended some = ctl(cluster, "delete a nothing b");
  CHECK(some.status == 1);
  CHECK(some.err == "fluxonctl: no such key: nothing\n");
  CHECK(ctl(cluster, "delete c d").status == 0);
  const Ended exists = ctl(cluster, "exists a");
  CHECK(exists.status == 1);
  CHECK(exists.out == "no\n");
  CHECK(exists.err.empty());
  CHECK(ctl(cluster, "stat a").status == 1);
  CHECK(ctl(cluster, "count").out == "0\n");
  CHECK(ctl(cluster, "list").out.empty());
  ctl(cluster, "put a", "printf 123 | ");
  CHECK(ctl(cluster, "put a --reject-if-exists", "printf 4 | ").status == 73);
  CHECK(ctl(cluster, "get a").out == "123");
  const Ended stat = ctl(cluster, "--json stat a");
  CHECK(jsonValues(cluster, stat.out, "o['key'], o['bytes'], o['nodes'], o['lease']") == "('a', 3, ['n0'], '0')\n");
  CHECK(ctl(cluster, "get ''").status == 65);
  const Ended noKey = ctl(cluster, "put ''", "printf 1 | ");
  CHECK(noKey.status == 65);
  CHECK(oneLine(noKey.err));
  CHECK(ctl(cluster, "get " + std::string(5000, 'k')).status == 65);
}

TEST_CASE("key leases: granted, kept alive, revoked with their keys; an unknown one is refused") {
  Cluster cluster;
  const Ended granted = ctl(cluster, "lease grant 60");
  REQUIRE(granted.status == 0);
  const std::string lease = granted.out.substr(0, granted.out.size() - 1);
  CHECK(ctl(cluster, "put key --lease " + lease, "printf 1 | ").status == 0);
  CHECK(ctl(cluster, "lease keepalive " + lease).status == 0);
  CHECK(ctl(cluster, "--json lease keepalive " + lease).out == "{\"lease\":\"" + lease + "\"}\n");  // a number would be rounded
  const Ended second = ctl(cluster, "lease grant 7200");
  const std::string other = second.out.substr(0, second.out.size() - 1);
  CHECK(jsonValues(cluster, ctl(cluster, "--json lease list").out,
                   "o['lease'], o['ttl_ms'], o['keys'], o['ttl_ms'] - 60000 < o['left_ms'] <= o['ttl_ms']") ==
        "('" + lease + "', 60000, 1, True)\n('" + other + "', 7200000, 0, True)\n");
  const Ended listed = ctl(cluster, "lease list");
  const std::regex rows("^ *LEASE +TTL MS +LEFT MS +KEYS\n *" + lease + " +60000 +[0-9]+ +1\n");
  CHECK_MESSAGE(std::regex_search(listed.out, rows), listed.out);
  CHECK(ctl(cluster, "lease revoke " + other).status == 0);
  CHECK(ctl(cluster, "lease revoke " + lease).status == 0);
  CHECK(oneLine(ctl(cluster, "lease list").err));  // there is none
  CHECK(ctl(cluster, "lease list").status == 0);
  CHECK(ctl(cluster, "get key").status == 1);
  for (const std::string& command : {"lease keepalive " + lease, "put key --lease " + lease, "lease keepalive 999"s}) {
    const Ended ended = ctl(cluster, command, "printf 1 | ");
    CHECK(ended.status == 65);
    CHECK(oneLine(ended.err));
  }
}

TEST_CASE("a listing goes over its pages in byte order, between its bounds, and every line of JSON holds the exact key") {
  Cluster cluster;
  std::set<std::string> keys = {
      "a", "\x7f", "new\nline", "quote\"s'", "back\\slash", "../x", "%00", "{\"json\":1}", "[list,of]", "++", "tab\t", "\xff\xfe\x80",
      "\xc3\xa9", "\xed\xa0\x80", "-o", " ", "\x01", "with\0nul"s, std::string(4096, 'k'),
      // No UTF-8, though a C library may take them: above U+10FFFF, and sequences of five and six bytes.
      "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\u00f4\u0090\u0080\u0080"};
  {
    auto client = cluster.client();
    for (const std::string& key : keys) client.put(key, key);
    for (int i = 0; i < 2500; ++i) client.put("page/" + std::to_string(i), "x");
  }
  std::string expected;
  for (int i = 0; i < 2500; ++i) keys.insert("page/" + std::to_string(i));
  for (const std::string& key : keys) expected += hex(key) + "\n";
  CHECK(jsonValues(cluster, ctl(cluster, "--json list").out, kKeyHex) == expected);
  CHECK(jsonValues(cluster, ctl(cluster, "--json routes").out, kKeyHex) == expected);
  for (const char* verb : {"list", "routes"}) {
    const Ended table = ctl(cluster, verb);
    CHECK(std::count(table.out.begin(), table.out.end(), '\n') == static_cast<long>(keys.size()) + 1);
    CHECK(std::all_of(table.out.begin(), table.out.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 || c == '\n'; }));
    const std::string page = jsonValues(cluster, ctl(cluster, "--json "s + verb + " page/ --after page/10 --limit 1200").out, "o['key']");
    CHECK(std::count(page.begin(), page.end(), '\n') == 1200);
    CHECK(page.starts_with("page/100\n"));
    CHECK(ctl(cluster, verb + " none/"s).out.empty());
  }
  CHECK(ctl(cluster, "count page/").out == "2500\n");
  // As arguments of the shell they are still themselves.
  for (const std::string& key : keys) {
    if (has(key, "\0"s) || key == "-o" || key.starts_with("page/")) continue;
    CAPTURE(key);
    CHECK(ctl(cluster, "get " + shellQuoted(key)).out == key);
  }
  CHECK(ctl(cluster, "get -- -o").out == "-o");
}

TEST_CASE("operator verbs in text and JSON while the daemons live") {
  Cluster cluster({.nodes = {"n0", "n1"}});
  auto client = cluster.client("n0");
  client.put("pinned \"key\"", valueOf(1, 100'000));
  client.put("other", "x");
  const auto holder = client.get("pinned \"key\"");
  for (const std::string verb : {"status", "members", "routes", "pins", "rings", "metrics", "metrics n1", "stat --local other"}) {
    CAPTURE(verb);
    const Ended text = ctl(cluster, verb), json = ctl(cluster, "--json " + verb);
    CHECK(text.status == 0);
    CHECK(json.status == 0);
    CHECK(text.err.empty());
    CHECK(json.err.empty());
    CHECK(text.out.size() > 20);
    CHECK_FALSE(jsonValues(cluster, json.out, "1").empty());
  }
  CHECK(jsonValues(cluster, ctl(cluster, "--json status").out,
                   "o['cluster'], o['keys'], o['puts_in_flight'], o['pid'], sorted(x['node'] for x in o['owners'])") ==
        "('t', 2, 0, " + std::to_string(cluster.pid("master")) + ", ['n0', 'n1'])\n");
  // Of an SSD tier that no node has people read nothing.
  CHECK(jsonValues(cluster, ctl(cluster, "--json status").out,
                   "[(x['ssd_bytes'], x['ssd_used_bytes'], x['ssd_replicas']) for x in o['owners']]") ==
        "[(None, None, None), (None, None, None)]\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json members").out, "o['ssd_life'], o['ssd_replicas']") == "(None, None)\n(None, None)\n");
  for (const char* verb : {"status", "members"}) CHECK_FALSE(has(ctl(cluster, verb).out, "SSD"));
  CHECK(jsonValues(cluster, ctl(cluster, "--json members").out, "o['node'], o['state'], o['pid']") ==
        "('n0', 'joined', " + std::to_string(cluster.pid("n0")) + ")\n('n1', 'joined', " + std::to_string(cluster.pid("n1")) + ")\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json members").out,
                   "o['free_bytes'] + o['routed_bytes'] + o['leased_bytes'] + o['reserved_bytes'] + o['in_flight_bytes'] "
                   "+ o['retired_bytes'] == o['segment_bytes']") == "True\nTrue\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json pins").out, "o['key'], o['bytes'], o['pid'], o['state'], o['alive']") ==
        "('pinned \"key\"', 100000, " + std::to_string(::getpid()) + ", 'committed', True)\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json rings").out, "o['hits'], o['submitted'], o['grants']") == "(1, 0, 0)\n");
  const std::string link = jsonValues(cluster, ctl(cluster, "--json members").out, "o['link']");
  CHECK(link == "\n\n");
  const Ended wide = ctl(cluster, "members --wide");
  CHECK_MESSAGE(has(wide.out, "  METRICS  "), wide.out);
  CHECK(has(wide.out, "LINK  LABEL\n"));
  CHECK(has(wide.out, "http://" + cluster.pages("n1") + "/metrics"));
  CHECK_FALSE(has(ctl(cluster, "status").out, "LINK"));  // no node has one
  const Ended unknown = ctl(cluster, "metrics n7");
  CHECK(unknown.status == 64);
  CHECK(has(unknown.err, "'n7' (running: master, n0, n1)"));
}

TEST_CASE("a gauge says how many bytes readers hold") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", valueOf(1, 100'000));
  auto one = client.get("key");
  auto two = client.get("key");
  const auto held = [&] { return cluster.metric("n0", "fluxon_owner_segment_read_bytes"); };
  CHECK(eventually([&] { return held() == 102'400; }));
  client.put("key", valueOf(2, 5000));
  const auto other = client.get("key");
  one.reset();
  CHECK(eventually([&] { return held() == 102'400 + 8192; }));
  two.reset();
  CHECK(eventually([&] { return held() == 8192; }));
}

TEST_CASE("a client that is stopped with a grant is named by pins and rings, and the age of its grant by a gauge") {
  Cluster cluster;
  int granted[2];
  REQUIRE(::pipe(granted) == 0);
  const pid_t child = inChild([&] {
    auto mine = cluster.client();
    auto grant = mine.putStart("half done", 100'000);
    [[maybe_unused]] const ssize_t told = ::write(granted[1], "x", 1);
    ::pause();
    return grant ? 0 : 1;
  });
  char byte;
  REQUIRE(::read(granted[0], &byte, 1) == 1);
  ::close(granted[0]);
  ::close(granted[1]);
  ::kill(child, SIGSTOP);
  CHECK(jsonValues(cluster, ctl(cluster, "--json pins").out, "o['key'], o['bytes'], o['pid'], o['state'], o['words']") ==
        "('half done', 100000, " + std::to_string(child) + ", 'granted', 0)\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json rings").out, "o['pid'], o['grants']") == "(" + std::to_string(child) + ", 1)\n");
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_oldest_grant_seconds") > 0.5; }));
  CHECK(cluster.metric("n0", "fluxon_owner_oldest_put_seconds") > 0.5);
  CHECK(cluster.metric("n0", "fluxon_owner_oldest_flight_seconds") == 0);
  ::kill(child, SIGKILL);
  CHECK(waitFor(child) == -SIGKILL);
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_oldest_grant_seconds") == 0; }));
  CHECK(ctl(cluster, "--json pins").out.empty());
}

TEST_CASE("with every daemon killed, pins, rings and stat --local still tell who holds what; the rest says what is missing") {
  Cluster cluster;
  auto client = cluster.client();
  client.put("key", valueOf(1, 100'000));
  client.put("gone", "x");
  const auto holder = client.get("key");
  cluster.kill("master");
  cluster.kill("n0");
  const std::string me = std::to_string(::getpid());
  CHECK(jsonValues(cluster, ctl(cluster, "--json pins").out, "o['key'], o['pid'], o['alive'], o['state']") ==
        "('key', " + me + ", True, 'committed')\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json rings").out, "o['node'], o['hits'], o['pid']") == "('n0', 1, " + me + ")\n");
  CHECK(jsonValues(cluster, ctl(cluster, "--json stat --local key").out, "o['key'], o['bytes'], o['state']") ==
        "('key', 100000, 'committed')\n");
  CHECK(has(ctl(cluster, "pins").out, "committed"));
  CHECK(has(ctl(cluster, "rings").out, me));
  CHECK(eventually([&] { return jsonValues(cluster, ctl(cluster, "--json stat --local key").out, "o['serving']") == "False\n"; }));
  CHECK(ctl(cluster, "stat --local none").status == 1);
  for (const std::string verb : {"status", "members", "routes", "metrics", "metrics n0"}) {
    CAPTURE(verb);
    const Ended ended = ctl(cluster, verb);
    CHECK(ended.status == 69);
    CHECK(ended.err == "fluxonctl: service unavailable: no master of cluster t is running (start one: fluxonctl up)\n");
    CHECK(ended.out.empty());
  }
  for (const std::string verb : {"put key", "get key", "delete key", "stat key", "exists key", "list", "count", "lease grant 10",
                                 "lease keepalive 1", "lease revoke 1"}) {
    CAPTURE(verb);
    const Ended ended = ctl(cluster, "--timeout 2 " + verb, "printf x | ");
    CHECK(ended.status == 69);
    CHECK(oneLine(ended.err));
    CHECK(has(ended.err, "no owner"));
  }
}

namespace {

// The file that an ssdd with one device of two shards would show.
void writeSsdd(const std::string& path, const std::string& root, const std::function<void(fluxon::ssd::SsddFile&)>& change = {}) {
  namespace ssd = fluxon::ssd;
  const auto file = std::make_unique<ssd::SsddFile>();
  file->header.file = {{}, fluxon::shm::kFormatVersion, sizeof file->header, sizeof *file, 7, {}};
  std::memcpy(file->header.file.magic, ssd::kSsddMagic, 8);
  file->header.life = 0xabc;
  file->header.pid = 4711;
  ssd::SsddStatus& status = file->status;
  status.devices = 1, status.shards = 2, status.engine = 2;
  status.capacityBytes = 2 << 20, status.usedBytes = 3000, status.entries = 2;
  std::snprintf(status.device[0].path, sizeof status.device[0].path, "%s", root.c_str());
  status.device[0].capacityBytes = 2 << 20, status.device[0].writes = 2;
  status.shard[0].usedBytes = 1000, status.shard[1].usedBytes = 2000;
  if (change) change(*file);
  write(path, std::string(reinterpret_cast<const char*>(file.get()), sizeof *file));
}

}  // namespace

TEST_CASE("ssd and scrub of a node without an SSD tier: 69, not enabled") {
  Cluster cluster;
  for (const std::string verb : {"ssd", "--json ssd", "--node n0 ssd", "scrub", "--node n0 scrub"}) {
    CAPTURE(verb);
    const Ended ended = ctl(cluster, verb);
    CHECK(ended.status == 69);
    CHECK(ended.out.empty());
    CHECK(ended.err == "fluxonctl: not enabled: no ssdd of n0 has attached (it needs large_file_paths and large_limit_size in [owner])\n");
  }
  CHECK(has(ctl(cluster, "--node n7 ssd").err, "no files of node n7"));
}

TEST_CASE("ssd shows the file of an ssdd with every daemon dead; who holds a shard file lives") {
  Cluster cluster;
  cluster.kill("master");
  cluster.kill("n0");
  const std::string file = cluster.root() + "/t/n0/ssdd", root = cluster.folder() + "/it's a root";
  fs::create_directories(root);
  write(root + "/shard-000", "");
  writeSsdd(file, root);
  const Ended ended = ctl(cluster, "ssd"), json = ctl(cluster, "--json ssd");
  CHECK(ended.status == 0);
  CHECK(ended.err.empty());
  for (const std::string part : {"node    n0\n", "ssdd    has ended, pid 4711, life 0000000000000abc, attached ", " ago, not any more\n",
                                 "engine  threads\n", "metrics off\n", "holds   2.9 KiB of 2 MiB, 2 entries\n", "serving"}) {
    CHECK_MESSAGE(has(ended.out, part), ended.out);
  }
  CHECK(jsonValues(cluster, json.out,
                   "o['node'], o['life'], o['pid'], o['alive'], o['attached'], o['metrics'], "
                   "o['engine'], o['used_bytes'], o['entries'], o['paused'], o['loads'], "
                   "[(d['path'].split('/')[-1], d['used_bytes'], d['writes']) for d in o['devices']], "
                   "[(s['shard'], s['device'], s['state'], s['used_bytes']) for s in o['shards']]") ==
        "('n0', '0000000000000abc', 4711, False, False, None, 'threads', 3000, 2, False, 0, [(\"it's a root\", 3000, 2)], "
        "[(0, 0, 'serving', 1000), (1, 0, 'serving', 2000)])\n");
  const int shard = ::open((root + "/shard-000").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(shard, LOCK_EX) == 0);
  CHECK(has(ctl(cluster, "ssd").out, "ssdd    runs, pid ?, "));  // whoever it is, its number was only written
  CHECK(jsonValues(cluster, ctl(cluster, "--json ssd").out, "o['alive'], o['pid']") == "(True, None)\n");
  ::close(shard);
  writeSsdd(file, "/no/such/root");
  CHECK(jsonValues(cluster, ctl(cluster, "--json ssd").out, "o['alive']") == "None\n");
  // The owner that is asked for a scrub is dead.
  CHECK(ctl(cluster, "scrub").status == 69);
  CHECK(has(ctl(cluster, "scrub").err, "node n0: no owner"));
  CHECK(ctl(cluster, "clean").status == 0);
  CHECK_FALSE(fs::exists(cluster.root() + "/t/n0"));
}

TEST_CASE("ssd of a file with counts beyond it, or that is none: what there is, or damage") {
  Cluster cluster;
  const std::string file = cluster.root() + "/t/n0/ssdd";
  writeSsdd(file, "/r", [](fluxon::ssd::SsddFile& f) {
    f.status.devices = f.status.shards = ~uint64_t{0};
    for (auto& device : f.status.device) std::memset(device.path, '\xff', sizeof device.path);
    for (auto& each : f.status.shard) each.device = 99;
  });
  CHECK(jsonValues(cluster, ctl(cluster, "--json ssd").out,
                   "len(o['devices']), len(o['shards']), o['shards'][0]['device'], o['devices'][0]['used_bytes'], "
                   "o['shards_hidden'] > 0") == "(16, 128, None, None, True)\n");
  CHECK(has(ctl(cluster, "ssd").out, " more shards are not shown\n"));
  writeSsdd(file, "/r", [](fluxon::ssd::SsddFile& f) { f.header.file.magic[3] = 'x'; });
  for (const std::string verb : {"ssd", "--json ssd", "scrub"}) {
    const Ended ended = ctl(cluster, verb);
    CHECK(ended.status == 65);
    CHECK_MESSAGE(has(ended.err, "ssdd of node n0: wrong magic"), ended.err);
    CHECK(oneLine(ended.err));
  }
  write(file, "");
  CHECK(ctl(cluster, "ssd").status == 65);
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK(has(ctl(cluster, "ssd").err, "is not a regular file"));
}

TEST_CASE("a stopped master: every verb that needs it ends by its time-out with 75") {
  Cluster cluster;
  ctl(cluster, "put key", "printf value | ");
  cluster.signal("master", SIGSTOP);
  for (const std::string verb :
       {"status", "members", "routes", "metrics", "put key", "delete key", "stat key", "list", "count", "lease grant 10"}) {
    CAPTURE(verb);
    // Owners answer `unavailable` (69) once their lease has run out.
    const bool operators = verb == "status" || verb == "members" || verb == "routes" || verb == "metrics";
    const auto begun = std::chrono::steady_clock::now();
    const Ended ended = ctl(cluster, "--timeout 0.3 " + verb, "printf x | ");
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(2));
    CHECK((ended.status == 75 || (!operators && ended.status == 69)));
    CHECK_MESSAGE(oneLine(ended.err), ended.err);
  }
  cluster.signal("n0", SIGSTOP);
  CHECK(ctl(cluster, "--timeout 0.3 exists key").status == 75);
  cluster.resume();
  CHECK(eventually([&] { return ctl(cluster, "--timeout 1 put key", "printf x | ").status == 0; }));
}

TEST_CASE("what is no verb, option or number: 64, one line, nothing done") {
  Cluster cluster;
  for (const std::string arguments : {"",
                                      "nonsense",
                                      "get",
                                      "get a b",
                                      "put",
                                      "put a b c",
                                      "delete",
                                      "--nonsense status",
                                      "status extra",
                                      "--timeout 0 status",
                                      "--timeout -1 status",
                                      "--timeout x status",
                                      "--timeout 1e9 status",
                                      "--timeout '' status",
                                      "--cluster a/b status",
                                      "--node .x pins",
                                      "list --limit -1",
                                      "list --limit x",
                                      "list --limit 99999999999999999999",
                                      "lease",
                                      "lease nonsense",
                                      "help nonsense",
                                      "help get key",
                                      "lease grant",
                                      "lease grant 0",
                                      "lease grant -5",
                                      "lease revoke x",
                                      "put a --lease x",
                                      "config",
                                      "config check",
                                      "config nonsense",
                                      "metrics a b",
                                      "get --local a",
                                      "get a -o ''",
                                      "get a --output=",
                                      "put a ''",
                                      "read -o ''",
                                      "--cluster other config show",
                                      "up --log-dir /tmp",
                                      "status status"}) {
    CAPTURE(arguments);
    const Ended ended = ctl(cluster, arguments, "printf x | ");
    CHECK(ended.status == 64);
    CHECK(ended.out.empty());
    CHECK_MESSAGE(oneLine(ended.err), ended.err);
  }
  const std::map<std::string, std::string> meant{
      {"gett key", "unknown verb gett (did you mean get? accepted: put, get, "},
      {"lsit", "(did you mean list? "},
      {"mem", "(did you mean members? "},
      {"nonsense", "unknown verb nonsense (accepted: put, "},
      {"lease lst", "unknown verb lst after fluxonctl lease (did you mean list? accepted: grant, keepalive, revoke, list)"},
      {"lease", "a verb is missing after fluxonctl lease (accepted: grant, "},
      {"help drian", "unknown verb drian (did you mean drain? "},
      {"drain", "(see fluxonctl drain --help)"}};
  for (const auto& [arguments, said] : meant) {
    CAPTURE(arguments);
    const Ended ended = ctl(cluster, arguments);
    CHECK(ended.status == 64);
    CHECK(oneLine(ended.err));
    CHECK_MESSAGE(has(ended.err, said), ended.err);
  }
  for (const std::string arguments : {"--help", "--version", "get --help", "up --help", "help", "help lease grant"}) {
    const Ended ended = ctl(cluster, arguments);
    CHECK(ended.status == 0);
    CHECK(ended.out.size() > 10);
    CHECK(ended.err.empty());
  }
  CHECK(ctl(cluster, "count").out == "0\n");
}

TEST_CASE("help is in words, the same by help and --help, without the types and checks of the parser") {
  const std::vector<std::string> verbs{"",        "put",    "get",          "read",        "delete",  "stat",        "exists",     "list",
                                       "count",   "lease",  "status",       "routes",      "members", "lease grant", "lease list", "drain",
                                       "metrics", "evict",  "config check", "config show", "clean",   "pins",        "rings",      "ssd",
                                       "scrub",   "doctor", "up",           "down",        "help"};
  for (const std::string& verb : verbs) {
    CAPTURE(verb);
    const Ended help = execute(kCtl + " help " + verb);
    CHECK(help.status == 0);
    CHECK(help.out == execute(kCtl + " " + verb + " --help").out);
    CHECK_MESSAGE(has(help.out, "Usage: fluxonctl " + verb), help.out);
    for (const char* word : {"{", "UINT", "INT", "TEXT", "REQUIRED", "Env:"}) CHECK_MESSAGE(!has(help.out, word), help.out);
  }
  CHECK(has(execute(kCtl + " help evict").out, "--to PERCENT "));
  CHECK(has(execute(kCtl + " help drain").out, "  --no-wait "));
}

TEST_CASE("what config show prints is a configuration that shows the same, whatever its strings are") {
  Cluster cluster;
  const std::string first = cluster.folder() + "/first.toml", second = cluster.folder() + "/second.toml";
  write(first,
        "[common]\ncluster = \"c\"\nshm_root = \"/dev/shm/a b\"\nlog_level = \"warn\"\n[master]\nstate_dir = '/tmp/q\"uo\\te\u00e9'\nhttp "
        "= \"off\"\nlease_ms = 777\n"
        "put_wait_ms = 0\nmin_key_lease_ms = 5\n[owner]\nnode = \"x\"\nsegment_size = \"1.5GB\"\nmax_keys = 77\nmax_clients = 7\npopulate "
        "= false\nhttp = \"[::1]:80\"\nlarge_file_paths = [\"/it's\", \"/a\\\"b\"]\nlarge_limit_size = [\"1.5kB\", 512]\n"
        "[up]\nnodes = [\"x\", \"y-1\"]\n");
  const Ended shown = execute(kCtl + " --config " + first + " config show");
  REQUIRE_MESSAGE(shown.status == 0, shown.err);
  write(second, shown.out);
  CHECK(execute(kCtl + " config check " + second).out == second + ": ok\n");
  CHECK(execute(kCtl + " --config " + second + " config show").out == shown.out);
  for (const char* line : {"cluster = \"c\"", "http = \"off\"", "lease_ms = 777", "put_wait_ms = 0", "segment_size = 1610612736",
                           "max_clients = 7", "populate = false", "nodes = [ 'x', 'y-1' ]"}) {
    CHECK_MESSAGE(has(shown.out, "\n"s + line + "\n"), shown.out);
  }
  // As JSON the values are those of the file.
  const std::string values =
      jsonValues(cluster, execute(kCtl + " --json --config " + first + " config show").out, "o['section'], o['key'], o['value']");
  for (const char* line : {"('master', 'state_dir', '/tmp/q\"uo\\\\te\u00e9')", "('owner', 'populate', False)",
                           "('owner', 'segment_size', 1610612736)", "('up', 'nodes', ['x', 'y-1'])",
                           "('owner', 'large_file_paths', [\"/it's\", '/a\"b'])", "('owner', 'large_limit_size', [1536, 512])"}) {
    CHECK_MESSAGE(has(values, line + "\n"s), values);
  }
  CHECK(std::count(values.begin(), values.end(), '\n') == 30);
  // The defaults alone, too.
  write(second, execute("cd /; FLUXON_CONFIG= " + kCtl + " config show").out);
  CHECK(execute(kCtl + " --config " + second + " config show").out == read(second));
}

TEST_CASE("metrics of all processes parse, stay within bounds under load, and show nothing in flight after it") {
  Cluster cluster({.nodes = {"n0", "n1"}, .owner = "segment_size = \"16MiB\"\n", .master = "put_wait_ms = 500\n"});
  const auto page = [&] { return parsePage(ctl(cluster, "metrics").out); };
  std::atomic<bool> stop{false};
  std::vector<std::thread> load;
  for (uint64_t i = 0; i < 6; ++i) {
    load.emplace_back([&, i] {
      auto client = cluster.client(i % 2 ? "n0" : "n1");
      std::mt19937_64 random(i);
      std::vector<fluxon::Holder> holders;
      while (!stop) {
        const std::string key = "k" + std::to_string(random() % 40);
        try {
          switch (random() % 8) {
            case 0: client.remove(key); break;
            case 1: client.putStart(key, random() % 1'000'000, {.timeoutMs = 500}); break;  // given up
            case 2:
            case 3: client.put(key, valueOf(i, random() % 2'000'000), {.timeoutMs = 500}); break;
            case 4: client.put(key, valueOf(i, random() % 4096)); break;
            default:
              if (auto holder = client.get(key, 500)) holders.push_back(std::move(*holder));
              if (holders.size() > 5) holders.clear();
          }
        } catch (const fluxon::Exception&) {
        }
      }
    });
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::getenv("FLUXON_LONG") ? 20'000 : 2500);
  int samples = 0;
  for (; std::chrono::steady_clock::now() < end; ++samples) checkBounds(page());
  CHECK(samples > 2);
  stop = true;
  for (std::thread& thread : load) thread.join();
  const bool rests = eventually([&] {
    const Page now = page();
    return now.sum("fluxon_owner_requests_pending") == 0 && now.sum("fluxon_owner_clients") == 0 &&
           now.sum("fluxon_owner_directory_slots", "retired") == 0 && now.sum("fluxon_master_segment_retired_bytes") == 0 &&
           now.sum("fluxon_master_segment_inflight_bytes") == 0;
  });
  CHECK_MESSAGE(rests, (ctl(cluster, "members").out + ctl(cluster, "pins").out));
  const Page after = page();
  checkBounds(after);
  checkNothingInFlight(after);
  CHECK(after.sum("fluxon_master_puts_published_total") > 10);
  CHECK(after.sum("fluxon_owner_directory_slots", "committed") >= after.sum("fluxon_master_keys"));
  double parts = 0;
  for (const char* part : {"free", "routed", "reserved", "inflight", "retired"})
    parts += after.sum("fluxon_master_segment_"s + part + "_bytes");
  CHECK(parts == after.sum("fluxon_master_segment_capacity_bytes"));
  // Buckets only grow, and the last one is the count.
  for (const char* node : {"n0", "n1"}) {
    double last = 0;
    const Page one = parsePage(ctl(cluster, "metrics "s + node).out);
    for (const Sample& sample : one.samples) {
      if (sample.name != "fluxon_owner_local_get_seconds_bucket") continue;
      CHECK(sample.value >= last);
      last = sample.value;
    }
    CHECK(last == one.sum("fluxon_owner_local_get_seconds_count"));
  }
}
