// base: sizes, names, ids, results, JSON strings, the configuration file.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/config.h"
#include "base/extent.h"
#include "base/host_defaults.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/log.h"
#include "base/read_file.h"
#include "base/result.h"
#include "base/size.h"
#include "base/thread.h"

namespace fluxon {
namespace {

uint64_t sizeOf(const char* text) {
  const Result<uint64_t> size = parseSize(text, 0);
  INFO(text);
  REQUIRE(size);
  return size.value();
}
std::string refusal(const std::string& text, uint64_t minimum = 1) {
  const Result<uint64_t> size = parseSize(text, minimum);
  INFO(text);
  REQUIRE_FALSE(size);
  CHECK(size.error().code == Code::invalidArgument);
  CHECK(size.error().detail.find("size '" + text + "'") == 0);
  CHECK(size.error().detail.find("accepted:") != std::string::npos);
  return size.error().detail;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("log: of lines that strangers cause one a second is said, and how many were not") {
  log::Seldom seldom;
  CHECK(seldom.line("a", Time{seconds(5).ns}) == "a");
  CHECK(seldom.line("b", Time{seconds(6).ns - 1}).empty());
  CHECK(seldom.line("c", Time{seconds(6).ns - 1}).empty());
  CHECK(seldom.line("d", Time{seconds(6).ns}) == "d (2 lines like this were left out before it)");
  CHECK(seldom.line("e", Time{seconds(7).ns}) == "e");
}

TEST_CASE("size: units are binary whatever their spelling") {
  CHECK(sizeOf("0") == 0);
  CHECK(sizeOf("17") == 17);
  CHECK(sizeOf("17B") == 17);
  CHECK(sizeOf("64k") == 64 * kKiB);
  CHECK(sizeOf("64KB") == 64 * kKiB);
  CHECK(sizeOf("64KiB") == 64 * kKiB);
  CHECK(sizeOf("10GB") == 10 * kGiB);
  CHECK(sizeOf("10 gib") == 10 * kGiB);
  CHECK(sizeOf("3t") == 3 * kTiB);
  CHECK(sizeOf("256MiB") == 256 * kMiB);
}

TEST_CASE("size: fractions are cut to whole bytes, without rounding") {
  CHECK(sizeOf("1.5GB") == 3 * kGiB / 2);
  CHECK(sizeOf("512.9B") == 512);
  CHECK(sizeOf("0.9999") == 0);
  CHECK(sizeOf("1.0009765625k") == 1025);
  CHECK(sizeOf("1.000976562499999999k") == 1024);
  CHECK(sizeOf("0.001k") == 1);
  CHECK(sizeOf("1.99999999999999999999k") == 2047);
  CHECK(sizeOf("0.1GB") == 107374182);
}

TEST_CASE("size: what is no size is refused with the accepted forms") {
  for (const char* text : {"", "-1", "1x", "x", "GB", ".5GB", "1.", "1.GB", " 1", "1,5GB", "1e3", "0x10", "+1", "1 G B", "1GBB", "NaN"})
    refusal(text);
  CHECK(contains(refusal("0", 512), "below the minimum of 512 B"));
  CHECK(contains(refusal("511.9", 512), "below the minimum"));
  CHECK(contains(refusal("9223372036854775808"), "too large"));
  CHECK(contains(refusal("99999999999999999999999999999999999999999999"), "too large"));
  CHECK(contains(refusal("8388608TB"), "too large"));
}

TEST_CASE("size: 99999t is more than any machine has, and refused") { refusal("99999t"); }

TEST_CASE("size: printed with at most one decimal") {
  CHECK(formatSize(0) == "0 B");
  CHECK(formatSize(1023) == "1023 B");
  CHECK(formatSize(1024) == "1 KiB");
  CHECK(formatSize(1536) == "1.5 KiB");
  CHECK(formatSize(64 * kMiB) == "64 MiB");
  CHECK(formatSize(3 * kGiB / 2) == "1.5 GiB");
  CHECK(formatSize(kTiB) == "1 TiB");
}

TEST_CASE("names: path components of 1 to 32 harmless characters") {
  for (const char* good : {"a", "node-1", "A_b.c", "0", "01234567890123456789012345678901"}) CHECK(validName(good));
  for (const char* bad : {"", ".", "..", ".a", "a/b", "../x", "a b", "a\n", "\xc3\xa4", "%00", "012345678901234567890123456789012"})
    CHECK_FALSE(validName(bad));
  CHECK_FALSE(validName(std::string("a\0b", 3)));
}

TEST_CASE("put id: term and sequence, in that order") {
  const PutId id(Term(3), 17);
  CHECK(id.term() == 3);
  CHECK(id.sequence() == 17);
  CHECK(toString(id) == "3.17");
  CHECK((PutId(Term(4), 1) > PutId(Term(3), PutId::kMaxSequence)));
  CHECK(PutId(Term(PutId::kMaxTerm), PutId::kMaxSequence).value == UINT64_MAX);
}

TEST_CASE("incarnations are not 0 and differ") {
  const Incarnation a = newIncarnation(), b = newIncarnation();
  CHECK(bool(a));
  CHECK((a != b));
  CHECK(toString(Incarnation(0xf3)) == std::string("00000000000000f3"));
}

TEST_CASE("results: values and names are unique, outcomes lie below 16") {
  std::map<int, std::string> values;
  std::set<std::string> names, sentences;
#define FLUXON_RESULT(name, cname, value, kind, retry, status, text) \
  CHECK(values.emplace(value, #name).second);                        \
  CHECK(names.insert(#cname).second);                                \
  CHECK(sentences.insert(text).second);                              \
  CHECK(codeFromWire(value) == Code::name);                          \
  CHECK(std::string(codeName(Code::name)) == #name);                 \
  CHECK(std::string(sentence(Code::name)) == text);                  \
  CHECK(sysexit(Code::name) == status);                              \
  CHECK(isOutcome(Code::name) == (std::string(#kind) == "outcome")); \
  CHECK((std::string(#retry) == "never" || std::string(#retry) == "later" || std::string(#retry) == "fresh"));
#include <fluxon/errors.def>
#undef FLUXON_RESULT
}

TEST_CASE("results: a number outside the table is a protocol error") {
  for (const uint32_t value : {4u, 15u, 34u, 65536u + 1, UINT32_MAX}) CHECK(codeFromWire(value) == Code::protocol);
  CHECK(std::string(codeName(static_cast<Code>(999))) == "unknown");
  CHECK(std::string(sentence(static_cast<Code>(999))) == "unknown result");
}

TEST_CASE("results: errno becomes an error that names what was tried") {
  CHECK(systemError("open /x", EACCES).code == Code::denied);
  CHECK(systemError("open /x", ENOENT).code == Code::system);
  CHECK(systemError("open /x", ENOENT).message() == "operating system error: open /x: No such file or directory");
  CHECK(Error{Code::miss, ""}.message() == "no such key");
}

TEST_CASE("a thread that the system refuses is an error, which names the limit") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) a sanitizer takes the address space that a thread is to lack");
  return;
#endif
  Result<std::thread> thread = startThread([] {});
  REQUIRE(thread);
  thread->join();
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit little{1 << 20, 1 << 20};  // less than is in use: no stack
    ::setrlimit(RLIMIT_AS, &little);
    // Stacks of threads that have ended are used again, so it is not the first one that is refused.
    Result<std::thread> refused = startThread([] { ::pause(); });
    for (int i = 0; refused && i < 100; ++i) {
      refused.value().detach();
      refused = startThread([] { ::pause(); });
    }
    const bool said = !refused && refused.error().code == Code::system && contains(refused.error().detail, "start a thread: ") &&
                      contains(refused.error().detail, "RLIMIT_AS is 1048576 bytes: ulimit -v, or LimitAS= of the unit");
    ::_exit(said ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("cgroup: the least pids.max on the way up is the limit of threads") {
  char root[] = "/tmp/fluxon-pids-XXXXXX";
  REQUIRE(::mkdtemp(root));
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = root + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/proc/self/mountinfo", "30 29 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/a/b/pids.max", "max\n");
  CHECK_FALSE(taskLimit(root));
  write("/sys/fs/cgroup/a/pids.max", "7\n");
  REQUIRE(taskLimit(root));
  CHECK(taskLimit(root)->most == 7);
  CHECK(taskLimit(root)->file == root + std::string("/sys/fs/cgroup/a/pids.max"));
  std::filesystem::remove_all(root);
}

TEST_CASE("json: any bytes become a valid string") {
  CHECK(jsonString("") == "\"\"");
  CHECK(jsonString("a\"b\\c") == R"("a\"b\\c")");
  CHECK(jsonString(std::string("\0\n\x1f\x7f", 4)) == R"("\u0000\u000a\u001f\u007f")");
  CHECK(jsonString("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") == "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  CHECK(jsonString("../x") == "\"../x\"");
}

TEST_CASE("json: bytes that are no UTF-8 come as escapes") {
  CHECK(jsonString("\xff") == R"("\u00ff")");
  CHECK(jsonString("\xc3") == R"("\u00c3")");            // cut short
  CHECK(jsonString("\xc3(") == R"("\u00c3(")");          // no continuation
  CHECK(jsonString("\xc0\x80") == R"("\u00c0\u0080")");  // overlong
  CHECK(jsonString("\xe0\x80\x80") == R"("\u00e0\u0080\u0080")");
  CHECK(jsonString("\xed\xa0\x80") == R"("\u00ed\u00a0\u0080")");            // surrogate
  CHECK(jsonString("\xf4\x90\x80\x80") == R"("\u00f4\u0090\u0080\u0080")");  // above U+10FFFF
  CHECK(jsonString("\xe2\x82") == R"("\u00e2\u0082")");
}

TEST_CASE("json: an object has its fields in the order in which they were added, names and texts escaped") {
  CHECK(JsonObject().str() == "{}");
  CHECK(JsonObject().text("error", "").str() == R"({"error":""})");
  CHECK(JsonObject().text("b", "x\"\n\xff").number("a", 0).str() == R"({"b":"x\"\u000a\u00ff","a":0})");
  CHECK(JsonObject().text("a\"\x01", "").str() == R"({"a\"\u0001":""})");
  CHECK(JsonObject().number("most", UINT64_MAX).flag("yes", true).flag("no", false).str() ==
        R"({"most":18446744073709551615,"yes":true,"no":false})");
}

TEST_CASE("json: a value that is JSON already goes into an object as it is") {
  const std::string inner = JsonObject().number("a", 1).str();
  CHECK(JsonObject().raw("object", inner).raw("none", "null").raw("list", "[1,2]").str() ==
        R"({"object":{"a":1},"none":null,"list":[1,2]})");
}

TEST_CASE("utf-8: what a decoder of code points up to U+10FFFF takes, and nothing else") {
  for (const char* good : {"", "a", "\x7f", "\xc3\xa4", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(isUtf8(good));
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\xff", "then \xf7\xbf\xbf\xbf"}) {
    CHECK_FALSE(isUtf8(bad));
  }
}

// --- configuration

Config config(const std::string& text) {
  Result<Config> parsed = Config::parse(text, "f.toml");
  INFO(text);
  REQUIRE_MESSAGE(parsed.ok(), (parsed.ok() ? std::string() : parsed.error().detail));
  return *parsed;
}
std::string wrong(const std::string& text) {
  const Result<Config> parsed = Config::parse(text, "f.toml");
  INFO(text);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.error().code == Code::badConfig);
  return parsed.error().detail;
}

TEST_CASE("config: nothing said means the defaults") {
  const Config c = config("");
  CHECK(c.common.cluster == "default");
  CHECK(c.master.lease == seconds(10));
  CHECK(c.owner.segmentBytes == 256 * kMiB);
  CHECK_FALSE(c.owner.node.empty());
  CHECK(c.up.nodes == std::vector<std::string>{c.owner.node});
  CHECK(contains(c.master.stateDir, "/fluxon/default"));
}

TEST_CASE("config: every key is read") {
  const Config c = config(
      "[common]\ncluster='x'\nshm_root='/r'\nshm_group='root'\nlog_level='debug'\n"
      "secret_file='/k'\nmaster='m:7000'\ntls_ca='/ca'\ntls_certificate='/cert'\ntls_key='/key'\n"
      "[master]\nstate_dir='/s'\nhttp='127.0.0.1:80'\nlease_ms=200\nput_wait_ms=0\nmin_key_lease_ms=1\nlisten='0.0.0.0:7000'\n"
      "[owner]\nnode='n'\nsegment_size='1.5GB'\nmax_keys=16\nmax_clients=1\npopulate=false\nhttp='off'\n"
      "link='10.0.0.1:0'\nadvertise='a.example'\nlabel='l'\n"
      "large_file_paths=['/d0','/d1']\nlarge_limit_size=['1.5GB', 512]\n"
      "[ssdd]\nhttp='127.0.0.1:81'\nbackend='io_uring'\nuring_mode='iovec'\n[up]\nnodes=['a','b']\n");
  CHECK(c.common.cluster == "x");
  CHECK(c.common.shmRoot == "/r");
  CHECK(c.common.shmGroup == "root");
  CHECK(c.common.logLevel == "debug");
  CHECK(c.common.secretFile == "/k");
  CHECK(toString(c.common.master) == "m:7000");
  CHECK(c.common.tlsCa == "/ca");
  CHECK(c.common.tlsCertificate == "/cert");
  CHECK(c.common.tlsKey == "/key");
  CHECK(c.master.stateDir == "/s");
  CHECK(toString(c.master.listen) == "0.0.0.0:7000");
  CHECK(c.master.http.port == 80);
  CHECK(c.master.lease == milliseconds(200));
  CHECK(c.master.putWait == milliseconds(0));
  CHECK(c.master.minimumKeyLease == milliseconds(1));
  CHECK(c.owner.node == "n");
  CHECK(c.owner.segmentBytes == 3 * kGiB / 2);
  CHECK(c.owner.maxKeys == 16);
  CHECK(c.owner.maxClients == 1);
  CHECK_FALSE(c.owner.populate);
  CHECK_FALSE(c.owner.http.enabled);
  CHECK(toString(c.owner.link) == "10.0.0.1:0");
  CHECK(c.owner.advertise == "a.example");
  CHECK(c.owner.label == "l");
  CHECK(c.owner.largeFilePaths == std::vector<std::string>{"/d0", "/d1"});
  CHECK(c.owner.largeLimitBytes == std::vector<uint64_t>{3 * kGiB / 2, 512});
  CHECK(c.ssdd.http.port == 81);
  CHECK(c.ssdd.backend == "io_uring");
  CHECK(c.ssdd.uringMode == "iovec");
  CHECK(c.up.nodes == std::vector<std::string>{"a", "b"});
}

TEST_CASE("config: what is shown can be read again") {
  const Config c = config("[owner]\nsegment_size=1048576\nnode='n'\n[up]\nnodes=['a','b']\n");
  CHECK(config(c.show()).show() == c.show());
  const Config far = config(
      "[common]\nsecret_file='/k'\nmaster='[fd00::1]:7000'\n[master]\nlisten='*:0'\n"
      "[owner]\nlink='0.0.0.0:1'\nadvertise='10.0.0.1:2'\n");
  CHECK(config(far.show()).show() == far.show());
  CHECK(contains(far.show(), "master = \"[fd00::1]:7000\"\n"));
}

TEST_CASE("config: each path of the SSD tier has its limit, and the line says so") {
  CHECK(config("").owner.largeLimitBytes.empty());
  CHECK(contains(wrong("[owner]\n\nlarge_file_paths=['/a','/b']\n"), "f.toml:3: owner.large_file_paths names folders of an SSD tier "));
  CHECK(config("[owner]\nlarge_file_paths=[]\nlarge_limit_size=[]\n").owner.largeLimitBytes.empty());
  CHECK(config("[owner]\nlarge_file_paths=['/a']\nlarge_limit_size=['512.9B']\n").owner.largeLimitBytes.at(0) == 512);
  CHECK(contains(wrong("[owner]\nlarge_file_paths=['/a','/b']\nlarge_limit_size=['4GB']\n"),
                 "f.toml:3: owner.large_limit_size has 1 sizes for 2 owner.large_file_paths"));
  CHECK(contains(wrong("[owner]\n\n\nlarge_limit_size=['4GB']\n"), "f.toml:4: owner.large_limit_size has 1 sizes for 0"));
  const Config two = config("[owner]\nlarge_file_paths=['/a \"x','/b']\nlarge_limit_size=['4GB', 513]\n[ssdd]\nhttp='off'\n");
  CHECK(config(two.show()).show() == two.show());
  CHECK(config(two.show()).owner.largeFilePaths == two.owner.largeFilePaths);
}

TEST_CASE("config: psync is for one path and single buffers") {
  const std::string two = "[owner]\nlarge_file_paths=['/a','/b']\nlarge_limit_size=[512,512]\n[ssdd]\n";
  CHECK(contains(wrong(two + "backend='psync'\n"), "f.toml:5: ssdd.backend = \"psync\" serves one"));
  CHECK(contains(wrong("[ssdd]\nbackend='psync'\nuring_mode='iovec'\n"), "f.toml:3: ssdd.uring_mode = \"iovec\" is not for"));
  CHECK(config(two + "uring_mode='iovec'\n").ssdd.backend == "auto");
  CHECK(config("[ssdd]\nbackend='psync'\n").ssdd.uringMode == "single_buffer");
}

TEST_CASE("config: nobody reaches this host from another one unless that is said") {
  const Config c = config("");
  CHECK_FALSE(c.master.listen.enabled);
  CHECK_FALSE(c.owner.link.enabled);
  CHECK_FALSE(c.common.master.enabled);
  CHECK(contains(c.show(), "listen = \"off\"\n"));
}

TEST_CASE("config: an address beyond loopback needs a secret, and the line says so") {
  for (const char* address :
       {"0.0.0.0:1", "[::]:1", "*:0", "10.0.0.1:0", "host:1", "128.0.0.1:1", "[::2]:1", "127.1:1", "localhost.example:1"}) {
    CHECK(contains(wrong("[master]\n\nlisten = '" + std::string(address) + "'\n"), "f.toml:3: master.listen = \"" + std::string(address)));
    CHECK(contains(wrong("[owner]\nadvertise='a'\nlink = '" + std::string(address) + "'\n"), "f.toml:3: owner.link"));
    CHECK(config("[common]\nsecret_file='/k'\n[master]\nlisten='" + std::string(address) + "'\n").master.listen.enabled);
  }
  for (const char* address : {"127.0.0.1:0", "127.255.0.9:80", "[::1]:1", "localhost:1", "off"})
    CHECK(toString(config("[master]\nlisten='" + std::string(address) + "'\n").master.listen) == address);
}

TEST_CASE("config: a link on every address needs to be told which one others use") {
  const std::string why = wrong("[common]\nsecret_file='/k'\n[owner]\nlink='0.0.0.0:0'\n");
  CHECK(contains(why, "f.toml:4: owner.link"));
  CHECK(contains(why, "owner.advertise"));
}

TEST_CASE("config: a certificate and its key come together") {
  CHECK(contains(wrong("[common]\ntls_certificate='/c'\n"), "f.toml:2: common.tls_certificate needs common.tls_key"));
  CHECK(contains(wrong("[common]\n\ntls_key='/k'\n"), "f.toml:3: common.tls_key needs common.tls_certificate"));
  CHECK(config("[common]\ntls_ca='/ca'\n").common.tlsCa == "/ca");
}

TEST_CASE("config: what is shown can be read again, with quotes and backslashes in paths too") {
  const Config c = config("[master]\nstate_dir='/a\"b\\c'\n");
  CHECK(config(c.show()).master.stateDir == c.master.stateDir);
}

TEST_CASE("config: an unknown key is refused with its line and the known ones") {
  const std::string why = wrong("[owner]\n\nnode = 'a'\nsegmentsize = 1\n");
  CHECK(contains(why, "f.toml:4: unknown key 'segmentsize' in [owner]"));
  CHECK(contains(why, "segment_size"));
}

TEST_CASE("config: unknown sections and keys outside of sections are refused") {
  CHECK(contains(wrong("\n[onwer]\n"), "f.toml:2: unknown section 'onwer'"));
  CHECK(contains(wrong("cluster = 'x'\n"), "f.toml:1: unknown section 'cluster'"));
  CHECK(contains(wrong("[[owner]]\n"), "unknown section 'owner'"));
}

TEST_CASE("config: wrong types and values out of range are refused with line, value and what is accepted") {
  for (const char* line :
       {"lease_ms = '10'", "lease_ms = 199", "lease_ms = 3600001", "lease_ms = 1.5", "lease_ms = true", "lease_ms = -1", "put_wait_ms = -1",
        "state_dir = 5", "http = '127.0.0.1'", "http = ':80'", "http = 'h:65536'", "http = 'h:x'", "http = 80"}) {
    const std::string why = wrong("[master]\n" + std::string(line) + "\n");
    CHECK(contains(why, "f.toml:2: "));
    CHECK(contains(why, "(accepted: "));
  }
  for (const char* line : {"segment_size = '1x'", "segment_size = 0", "segment_size = '1023KB'", "segment_size = -1", "node = '../x'",
                           "node = ''", "max_keys = 15", "max_clients = 0", "populate = 1", "segment_size = 1.5"}) {
    CHECK(contains(wrong("[owner]\n" + std::string(line) + "\n"), "f.toml:2: "));
  }
  for (const char* line : {"link = 'x'", "link = 1", "advertise = '0.0.0.0'", "advertise = 'a:0'", "advertise = 'a:b'", "advertise = 'off'",
                           "advertise = 'a/b'", "label = '../x'", "label = 1"}) {
    CHECK(contains(wrong("[owner]\n" + std::string(line) + "\n"), "f.toml:2: "));
  }
  for (const char* line :
       {"master = 'h'", "master = 'h:0'", "master = 'off'", "master = '0.0.0.0:1'", "master = 7000", "secret_file = 1", "tls_ca = true"}) {
    CHECK(contains(wrong("[common]\n" + std::string(line) + "\n"), "f.toml:2: "));
  }
  for (const char* line : {"large_limit_size = '4GB'", "large_limit_size = [511]", "large_limit_size = ['511B']",
                           "large_limit_size = [true]", "large_limit_size = ['1x']", "large_limit_size = [-1]", "large_file_paths = '/a'",
                           "large_file_paths = ['a']", "large_file_paths = ['']", "large_file_paths = [1]"}) {
    CHECK(contains(wrong("[owner]\n" + std::string(line) + "\n"), "f.toml:2: "));
  }
  for (const char* line : {"backend = 'uring'", "backend = 1", "uring_mode = ''", "http = 'x'"}) {
    CHECK(contains(wrong("[ssdd]\n" + std::string(line) + "\n"), "f.toml:2: "));
  }
  for (const char* line : {"nodes = 'a'", "nodes = ['a', 'a']", "nodes = ['a', 1]", "nodes = ['/']"}) {
    CHECK(contains(wrong("[up]\n" + std::string(line) + "\n"), "f.toml:2: "));
  }
  CHECK(contains(wrong("[common]\nlog_level = 'loud'\n"), "loud"));
}

TEST_CASE("config: text that is no TOML is refused with its line") {
  CHECK(contains(wrong("[owner]\nnode = \n"), "f.toml:2: "));
  CHECK(contains(wrong("[owner]\nnode = 'a'\nnode = 'b'\n"), "f.toml:3: "));
  CHECK(contains(wrong("[owner]\n[owner]\n"), "f.toml:2: "));
  CHECK(contains(wrong("[owner\n"), "f.toml:1: "));
  CHECK(contains(wrong("caf\xC3\xA9 = 1\n"), "f.toml:1: "));
  CHECK(contains(wrong("[::1]\n"), "f.toml: "));
}

TEST_CASE("config: a refusal has one line, whatever it quotes") {
  for (const char* text :
       {"[common]\n\"a\\nb\" = 1\n", "\"a\\nb\" = 1\n", "[common]\ncluster = \"a\\u001b\\nb\"\n", "[up]\nnodes = [1,\n2]\n", "a = b\nc"}) {
    const std::string why = wrong(text);
    CHECK(std::none_of(why.begin(), why.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }));
  }
}

TEST_CASE("config: a value without its quotes is told with them, and its key") {
  CHECK(contains(wrong("[owner]\nsegment_size = 64GB  # all of it\n"), "f.toml:2: segment_size: "));
  CHECK(wrong("[owner]\nsegment_size = 64GB  # all of it\n").ends_with(" (write segment_size = \"64GB\")"));
  CHECK(wrong("[common]\ncluster = cache\n").ends_with(" (write cluster = \"cache\")"));
  CHECK_FALSE(contains(wrong("[owner]\nnode = = 1\n"), "(write"));
  CHECK_FALSE(contains(wrong("[owner]\nsegment_size = 99999999999999999999\n"), "(write"));
}

TEST_CASE("config: files that must be found from everywhere have absolute paths") {
  for (const char* key : {"secret_file", "tls_ca", "tls_certificate", "tls_key"}) {
    CHECK(contains(wrong("[common]\n" + std::string(key) + " = 'secret'\n"), "(accepted: \"\" or an absolute path)"));
  }
  CHECK(contains(wrong("[master]\nstate_dir = 'state'\n"), "(accepted: \"\" or an absolute path)"));
  CHECK(contains(wrong("[common]\nshm_root = 'relative'\n"), "f.toml:2: shm_root = 'relative' (accepted: \"\" or an absolute path)"));
}

TEST_CASE("config: a shm_root leaves room for the path of a socket, with the name of the cluster") {
  const std::string most(108 - std::string("/c//socket").size() - 32 - 1, 'r'), line = "shm_root = '/" + most.substr(1);
  CHECK(config("[common]\ncluster = 'c'\n" + line + "/'\n").common.shmRoot == "/" + most.substr(1) + "/");
  CHECK(contains(wrong("[common]\ncluster = 'c'\n" + line + "r'\n"),
                 "f.toml:3: common.shm_root has " + std::to_string(most.size() + 1) + " bytes, too long for the path of a socket"));
  CHECK(contains(wrong("[common]\n" + line + "'\n"), "f.toml:2: common.shm_root has "));  // with cluster "default"
}

TEST_CASE("config: a group that this host does not have is refused with its line") {
  CHECK(config("[common]\nshm_group = 'root'\n").common.shmGroup == "root");
  CHECK(contains(wrong("[common]\nshm_group = 'no such group'\n"),
                 "f.toml:2: common.shm_group = \"no such group\" is no group of this host"));
}

TEST_CASE("config: a character of code 0, which would end the text for the system, is refused in every string") {
  for (const char* line : {"[common]\nshm_root = \"/a\\u0000b\"", "[common]\nsecret_file = \"/a\\u0000b\"",
                           "[owner]\nadvertise = \"a\\u0000\"", "[owner]\nlarge_file_paths = [\"/a\\u0000b\"]"}) {
    CHECK(contains(wrong(std::string(line) + "\n"), " has a character of code 0"));
    CHECK(contains(wrong(std::string(line) + "\n"), "f.toml:2: "));
  }
}

TEST_CASE("node names: that of the host; cut or replaced, with a hash that keeps hosts apart, and the reason") {
  CHECK(nodeNameOf("a.example", "").name == "a.example");
  CHECK(nodeNameOf("a.example", "").why.empty());
  CHECK(nodeNameOf(std::string(32, 'x'), "").name == std::string(32, 'x'));
  const std::string pod = "llama-70b-prefill-worker-deployment-5d9c7b-";
  const NodeName one = nodeNameOf(pod + "x2k4p", ""), other = nodeNameOf(pod + "q8m2z", "");
  CHECK(one.name.starts_with("llama-70b-prefill-worke-"));
  CHECK(one.name.size() == 32);
  CHECK(validName(one.name));
  CHECK(one.name != other.name);
  CHECK(one.name == nodeNameOf(pod + "x2k4p", "").name);
  CHECK(contains(one.why, pod + "x2k4p, is longer than 32 characters"));
  for (const char* bad : {"h\xC3\xB6st", ".hidden", "a b", "a/b"}) {
    const NodeName name = nodeNameOf(bad, "");
    CHECK(validName(name.name));
    CHECK(name.name.starts_with("node-"));
    CHECK(name.name != nodeNameOf("\xC3\xA4st", "").name);
    CHECK(contains(name.why, bad));
  }
  CHECK(nodeNameOf("", "1234").name == nodeNameOf("(none)", "1234").name);
  CHECK(nodeNameOf("", "1234").name != nodeNameOf("", "5678").name);
}

TEST_CASE("a file is read to its end, or to the most that is taken; a pipe until its writers have ended, if they write") {
  char path[] = "/tmp/fluxon-read-XXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(::write(fd, "text", 4) == 4);
  CHECK(readFile(path, 4, milliseconds(10)).value() == "text");
  CHECK(contains(readFile(path, 3, milliseconds(10)).error().detail, "it is longer than 3 B"));
  CHECK(contains(readFile("/dev/zero", 1 << 20, milliseconds(10)).error().detail, "read /dev/zero: it is longer than 1 MiB"));
  CHECK(contains(readFile("/tmp", 4, milliseconds(10)).error().detail, "read /tmp: Is a directory"));
  REQUIRE(::unlink(path) == 0);
  CHECK(contains(readFile(path, 4, milliseconds(10)).error().detail, std::string("open ") + path + ": No such file"));
  REQUIRE(::mkfifo(path, 0600) == 0);
  CHECK(contains(readFile(path, 4, milliseconds(10)).error().detail, "nothing came for 10 ms"));
  std::thread writer([&] {
    const int to = ::open(path, O_WRONLY);
    CHECK(::write(to, "te", 2) == 2);
    CHECK(::write(to, "xt", 2) == 2);
    ::close(to);
  });
  CHECK(readFile(path, 4, seconds(10)).value() == "text");
  writer.join();
  ::unlink(path);
  ::close(fd);
}

TEST_CASE("config: a file that cannot be read is an error") {
  CHECK(Config::load("/nonexistent/f.toml").error().code == Code::badConfig);
  CHECK(Config::load("").ok());
}

TEST_CASE("http address: off, or an address and a port") {
  CHECK_FALSE(parseEndpoint("off").value().enabled);
  CHECK(parseEndpoint("[::1]:8080").value().host == "[::1]");
  CHECK(parseEndpoint("0.0.0.0:65535").value().port == 65535);
  for (const char* bad :
       {"", "on", "h", "h:", ":1", "h:-1", "h:1x", "h:65536", "h:000001", "::1:80", "[]:80", "unix:/x:80", "a b:1", "**:1"})
    CHECK_FALSE(parseEndpoint(bad));
}

}  // namespace
}  // namespace fluxon
