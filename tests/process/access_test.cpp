// Access to the master over tcp: who has the secret and, with TLS, a certificate is served; everybody else is refused, with a line in
// the log and a count, while others are served. Both ends are on this host, as on two.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "cluster.h"
#include "net/handshake.h"

using namespace fluxon::test;
using fluxon::Incarnation;
namespace fs = std::filesystem;
namespace net = fluxon::net;

namespace {

constexpr const char* kRefused = "fluxon_master_connections_refused_total";

void writeFile(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  REQUIRE(::chmod(path.c_str(), mode) == 0);
}
std::string line(const std::string& key, const std::string& value) { return key + " = \"" + value + "\"\n"; }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
size_t linesOf(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

// Secrets, and certificates if there is an openssl.
class Keys {
 public:
  Keys() {
    writeFile(secret(), "the secret of this cluster\n");
    writeFile(other(), "the secret of another one\n");
  }
  std::string secret() const { return file("secret"); }
  std::string other() const { return file("other"); }
  std::string file(const std::string& name) const { return place_.folder() + "/" + name; }
  const Place& place() const { return place_; }

  // ca.pem, and NAME.pem with NAME.key: "server" is for 127.0.0.1 and localhost, "client" names nobody, "stranger" is of another CA.
  bool certify() const {
    if (std::system("openssl version >/dev/null 2>&1") != 0) {
      MESSAGE("SKIPPED: no openssl to make certificates with");
      return false;
    }
    const std::string key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    std::string script = "cd " + place_.folder() + " && umask 077 && ";
    for (const char* ca : {"ca", "otherca"})
      script += "openssl req -x509 " + key + " -days 2 -subj /CN=" + ca + " -keyout " + ca + ".key -out " + ca + ".pem && ";
    const std::string names = "'printf subjectAltName=DNS:127.0.0.1,DNS:localhost'";
    for (const auto& [name, ca, extension] :
         {std::tuple<std::string, std::string, std::string>{"server", "ca", "subjectAltName=DNS:127.0.0.1,DNS:localhost"},
          {"client", "ca", "subjectAltName=DNS:client.example"},
          {"stranger", "otherca", "subjectAltName=DNS:127.0.0.1"}}) {
      script += "printf " + extension + " >ext && openssl req " + key + " -subj /CN=" + name + " -keyout " + name + ".key -out req && " +
                "openssl x509 -req -days 2 -in req -CA " + ca + ".pem -CAkey " + ca + ".key -CAcreateserial -extfile ext -out " + name +
                ".pem && ";
    }
    const Ended made = execute("{ " + script + "true; }");
    REQUIRE_MESSAGE(made.status == 0, made.err);
    return true;
  }
  std::string tls(const std::string& ca, const std::string& name = "") const {
    const std::string own = name.empty() ? "" : line("tls_certificate", file(name + ".pem")) + line("tls_key", file(name + ".key"));
    return (ca.empty() ? "" : line("tls_ca", file(ca + ".pem"))) + own;
  }

 private:
  Place place_;
};

// A master that listens on loopback, whose owners and fluxonctl come over tcp with what `configure` says.
class Remote {
 public:
  explicit Remote(const std::string& common, const std::string& master = "listen = \"127.0.0.1:0\"\n")
      : cluster_({.nodes = {}, .master = master, .common = common}) {}
  // For processes that start from now on.
  void client(const std::string& common) { cluster_.configure({.master = "", .common = common + line("master", address())}); }
  std::string address() const { return cluster_.listens(); }
  Ended ctl(const std::string& arguments, const std::string& seconds = "10") const {
    return execute(FLUXON_BIN "/fluxonctl --timeout " + seconds + " --config " + cluster_.config() + " " + arguments);
  }
  double refused() const { return cluster_.metric("master", kRefused); }
  Cluster& operator*() { return cluster_; }
  Cluster* operator->() { return &cluster_; }

  // A connected tcp socket whose reads end after 10 s.
  int dial() const { return dial(address()); }
  static int dial(const std::string& where) {
    sockaddr_in to{};
    const size_t colon = where.rfind(':');
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(where.substr(colon + 1))));
    REQUIRE(::inet_pton(AF_INET, where.substr(0, colon).c_str(), &to.sin_addr) == 1);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{10, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    return fd;
  }

 private:
  Cluster cluster_;
};

// All that comes until the end or an error of the connection; false if it stays open.
bool ends(int fd, std::string* said = nullptr) {
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) != 0;) {
    if (n < 0) return errno == ECONNRESET || errno == EPIPE;
    if (said) said->append(buffer, static_cast<size_t>(n));
  }
  return true;
}
void say(int fd, const void* bytes, size_t size) { CHECK(::send(fd, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size)); }

void putAndGet(Cluster& cluster) {
  fluxon::Client client = cluster.client();
  const std::string value = valueOf(1, 100'000);
  CHECK(client.put("key", value));
  CHECK(client.get("key")->text() == value);
}

}  // namespace

TEST_CASE("access: an owner and fluxonctl reach their master over tcp with the secret alone") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()));
  master->start("n0");
  putAndGet(*master);
  const Ended status = master.ctl("--json status");
  CHECK(status.status == 0);
  CHECK(contains(status.out, "\"listen\":\"" + master.address() + "\""));
  CHECK(contains(master.ctl("status").out, "listen      " + master.address() + "\n"));
  CHECK(contains(master.ctl("members").out, "joined"));
  CHECK(contains(master.ctl("--json routes").out, "\"key\""));
  CHECK(contains(httpGet(master->pages("master"), "/health"), "\"listen\":\"" + master.address() + "\""));
  CHECK(contains(master->log("master"), "node n0 joins"));
  CHECK(master.refused() == 0);
}

TEST_CASE("access: an owner over tcp survives the death of its master, and joins the next one") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  const std::string address = master.address();
  master.client(line("secret_file", keys.secret()));
  master->start("n0");
  master->kill("master");
  CHECK(eventually([&] { return contains(master->log("n0"), "the connection is lost"); }));
  // At the same address again.
  master->configure({.master = line("listen", address), .common = line("secret_file", keys.secret())});
  master->start("master");
  CHECK(master.address() == address);
  CHECK(eventually([&] { return contains(master->log("n0"), "joined term 2"); }, 20));
  putAndGet(*master);
}

TEST_CASE("access: loopback needs no secret, and does not accept one") {
  const Keys keys;
  Remote master("");
  master.client("");
  CHECK(master.ctl("status").status == 0);
  CHECK(master.refused() == 0);
  master.client(line("secret_file", keys.secret()));
  const Ended asked = master.ctl("status");
  CHECK(asked.status == 77);
  CHECK(linesOf(asked.err) == 1);
}

TEST_CASE("access: a wrong secret and a missing one are denied, on both sides, and counted") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  double refused = 0;
  for (const std::string& common : {line("secret_file", keys.other()), std::string()}) {
    master.client(common);
    const Ended asked = master.ctl("status");
    CHECK(asked.status == 77);
    CHECK(linesOf(asked.err) == 1);
    CHECK(contains(asked.err, common.empty() ? "no cluster secret is configured here" : "does not know our cluster secret"));
    ++refused;
    CHECK(eventually([&] { return master.refused() == refused; }));
  }
  CHECK(contains(master->log("master"), "refused a connection of 127.0.0.1:"));
  master.client(line("secret_file", keys.secret()));
  CHECK(master.ctl("status").status == 0);
  CHECK(master.refused() == refused);
}

TEST_CASE("access: who knows no secret but goes on as if gets a verdict and no more") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  const net::Secret none;
  net::ClientHandshake hand(none, net::Purpose::rpc, {"n0", Incarnation(1)}, Incarnation());
  const int fd = master.dial();
  say(fd, &hand.hello(), sizeof hand.hello());
  net::ServerHello hello{};
  REQUIRE(::recv(fd, &hello, sizeof hello, MSG_WAITALL) == sizeof hello);
  CHECK(hello.code == 0);
  const net::ClientProof proof{};
  say(fd, &proof, sizeof proof);
  const char request[64] = {};
  say(fd, request, sizeof request);  // what RPC would be
  std::string said;
  CHECK(ends(fd, &said));
  ::close(fd);
  if (said.size() == sizeof(net::ServerVerdict)) {  // a reset may have overtaken it
    net::ServerVerdict verdict{};
    std::memcpy(&verdict, said.data(), sizeof verdict);
    CHECK(net::ClientHandshake::verdict(verdict).code == fluxon::Code::denied);
  }
  CHECK(said.size() <= sizeof(net::ServerVerdict));
  CHECK(eventually([&] { return master.refused() == 1; }));
  CHECK(contains(master->log("master"), "wrong cluster secret"));
}

TEST_CASE("access: random bytes, truncated openings and other protocols are refused while others are served") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()));
  master->start("n0");
  std::mt19937_64 random(7);
  double refused = 0;
  const net::Secret secret;
  for (int round = 0; round < 60; ++round) {
    const int fd = master.dial();
    std::string bytes(random() % 400, '\0');
    if (round % 3 == 0) {
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      net::ClientHandshake hand(secret, round % 2 ? net::Purpose::rpc : net::Purpose::data, {"x", Incarnation(1)}, Incarnation());
      bytes.assign(reinterpret_cast<const char*>(&hand.hello()), sizeof hand.hello());
      if (round % 3 == 1) bytes.resize(random() % bytes.size());
    }
    if (!bytes.empty()) say(fd, bytes.data(), bytes.size());
    ::shutdown(fd, SHUT_WR);
    CHECK(ends(fd));
    ::close(fd);
    ++refused;
    if (round % 20 == 0) CHECK(master.ctl("status").status == 0);
  }
  CHECK(eventually([&] { return master.refused() == refused; }));
  const std::string log = master->log("master");
  size_t lines = 0;
  for (size_t at = 0; (at = log.find("refused a connection of", at)) != std::string::npos; ++at) ++lines;
  CHECK(lines >= 1);
  CHECK(lines < static_cast<size_t>(refused));  // one a second at most
  putAndGet(*master);
}

TEST_CASE("access: nonsense on an owner's link, from strangers and from those who know the secret, is refused; values go on moving") {
  const Keys keys;
  const std::string owner = "segment_size = \"16MiB\"\nlink = \"127.0.0.1:0\"\n", common = line("secret_file", keys.secret());
  Cluster cluster({.owner = owner, .common = common});
  std::string members;
  REQUIRE(run(FLUXON_BIN "/fluxonctl --json --config " + cluster.config() + " members", members) == 0);
  const size_t at = members.find("\"link\":\"") + 8;
  const std::string link = members.substr(at, members.find('"', at) - at);
  fluxon::Client client = cluster.client();
  client.put("key", "value");
  std::mt19937_64 random(11);
  fluxon::Result<net::Secret> secret = net::Secret::load(keys.secret());
  REQUIRE(secret.ok());
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const int fd = Remote::dial(link);
    std::string bytes(1 + random() % 400, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 2 == 1) {
      // Known to the owner, and then without sense: unknown kinds, lengths beyond all bounds.
      net::ClientHandshake hand(secret.value(), net::Purpose::data, {"stranger", Incarnation(1)}, Incarnation());
      say(fd, &hand.hello(), sizeof hand.hello());
      net::ServerHello hello;
      REQUIRE(::recv(fd, &hello, sizeof hello, MSG_WAITALL) == sizeof hello);
      fluxon::Result<net::ClientProof> proof = hand.answer(hello);
      REQUIRE(proof.ok());
      say(fd, &proof.value(), sizeof(net::ClientProof));
      net::ServerVerdict verdict;
      REQUIRE(::recv(fd, &verdict, sizeof verdict, MSG_WAITALL) == sizeof verdict);
      REQUIRE(verdict.code == 0);
    }
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);  // it may be closed already
    ::shutdown(fd, SHUT_WR);
    CHECK(ends(fd));
    ::close(fd);
  }
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_link", "refusedHellos") >= 30; }));
  CHECK(cluster.metric("n0", "fluxon_owner_link", "refusedFrames") > 0);
  CHECK(contains(cluster.log("n0"), "link: refused a data connection of 127.0.0.1:"));
  CHECK(eventually([&] { return cluster.metric("n0", "fluxon_owner_link", "connectionsOpen") == 0; }));
  CHECK(contains(cluster.log("n0"), "link: "));
  CHECK(client.get("key")->text() == "value");
  CHECK(codeOf([&] { client.put("key", "again"); }) == FLUXON_OK);
}

TEST_CASE("access: connections that never say anything are ended after 5 s, and hold nobody up") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()));
  const auto begun = std::chrono::steady_clock::now();
  std::vector<int> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(master.dial());
  master->start("n0");
  putAndGet(*master);
  CHECK(master.ctl("status").status == 0);
  for (const int fd : silent) {
    CHECK(ends(fd));
    ::close(fd);
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  CHECK(took > 4.5);
  CHECK(took < 9);
  CHECK(master.refused() == 40);
  CHECK(contains(master->log("master"), "it did not open within 5 s"));
}

TEST_CASE("access: more openings than there is room for end the oldest, and an honest one comes through") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()));
  std::vector<int> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(master.dial());
  CHECK(master.ctl("status").status == 0);
  CHECK(master.refused() >= 44);
  CHECK(contains(master->log("master"), "the oldest of too many"));
  for (const int fd : silent) ::close(fd);
  CHECK(eventually([&] { return master.refused() == 300; }));
}

TEST_CASE("access: a master without descriptors waits for them and lives") {
#ifdef FLUXON_SANITIZED
  MESSAGE("SKIPPED: (machine) the sanitizers look at memory through a pipe, and take want of descriptors for bad memory");
  return;
#endif
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()));
  std::string output;
  REQUIRE(run("prlimit --nofile=40:40 --pid " + std::to_string(master->pid("master")), output) == 0);
  std::vector<int> silent;
  for (int i = 0; i < 60; ++i) silent.push_back(master.dial());
  for (const int fd : silent) ::close(fd);
  CHECK(eventually([&] { return master.ctl("status").status == 0; }));
}

TEST_CASE("access: nobody there and nobody who answers are told apart from a refusal") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()));
  master->signal("master", SIGSTOP);
  const Ended stopped = master.ctl("status", "1");
  CHECK(stopped.status == 75);
  CHECK(linesOf(stopped.err) == 1);
  master->signal("master", SIGCONT);
  CHECK(eventually([&] { return master.ctl("status").status == 0; }));
  master->kill("master");
  const Ended none = master.ctl("status");
  CHECK(none.status == 69);
  CHECK(linesOf(none.err) == 1);
  CHECK(contains(none.err, master.address()));
  master->configure({.master = "", .common = line("master", "no-such-host.invalid:1")});
  const Ended unknown = master.ctl("status");
  CHECK(unknown.status == 69);
  CHECK(contains(unknown.err, "no-such-host.invalid:1"));
}

TEST_CASE("access: a master of another cluster is not taken for ours") {
  Remote master("");
  master.client("");
  const Ended asked = master.ctl("--cluster other status");
  CHECK(asked.status == 78);
  CHECK(contains(asked.err, "of cluster t"));
}

TEST_CASE("access: with TLS an owner and fluxonctl are served, and what is not TLS is refused") {
  const Keys keys;
  if (!keys.certify()) return;
  const std::string secret = line("secret_file", keys.secret());
  Remote master(secret + keys.tls("", "server"));
  master.client(secret + keys.tls("ca"));
  master->start("n0");
  putAndGet(*master);
  CHECK(master.ctl("status").status == 0);
  CHECK(master.refused() == 0);

  SUBCASE("without TLS") {
    master.client(secret);
    const Ended plain = master.ctl("status");
    CHECK((plain.status == 77 || plain.status == 69));
    CHECK(linesOf(plain.err) == 1);
    CHECK(eventually([&] { return master.refused() == 1; }));
  }
  SUBCASE("a master of another CA") {
    master.client(secret + keys.tls("otherca"));
    const Ended other = master.ctl("status");
    CHECK(other.status == 77);
    CHECK(contains(other.err, "certificate"));
    CHECK(eventually([&] { return master.refused() == 1; }));
  }
  SUBCASE("a certificate of another name") {
    master->configure({.master = "", .common = secret + keys.tls("ca") + line("master", "127.0.0.2" + master.address().substr(9))});
    CHECK((master.ctl("status").status == 69 || master.ctl("status").status == 77));
  }
  SUBCASE("the wrong secret under TLS") {
    master.client(line("secret_file", keys.other()) + keys.tls("ca"));
    CHECK(master.ctl("status").status == 77);
  }
  SUBCASE("random bytes") {
    for (int i = 0; i < 10; ++i) {
      const int fd = master.dial();
      say(fd, valueOf(static_cast<uint64_t>(i), 300).data(), 300);
      ::shutdown(fd, SHUT_WR);
      CHECK(ends(fd));
      ::close(fd);
    }
    CHECK(eventually([&] { return master.refused() == 10; }));
  }
  master.client(secret + keys.tls("ca"));
  CHECK(master.ctl("status").status == 0);
  fluxon::Client client = master->client();
  CHECK(client.get("key")->size() == 100'000);
}

TEST_CASE("access: a master with a CA wants certificates of its clients") {
  const Keys keys;
  if (!keys.certify()) return;
  const std::string secret = line("secret_file", keys.secret());
  Remote master(secret + keys.tls("ca", "server"));
  double refused = 0;
  for (const std::string& tls : {keys.tls("ca"), keys.tls("ca", "stranger")}) {
    master.client(secret + tls);
    const Ended asked = master.ctl("status");
    CHECK(asked.status == 77);
    CHECK(linesOf(asked.err) == 1);
    CHECK_MESSAGE(contains(asked.err, "alert"), asked.err);
    ++refused;
    CHECK(eventually([&] { return master.refused() == refused; }));
  }
  master.client(secret + keys.tls("ca", "client"));
  CHECK(master.ctl("status").status == 0);
  CHECK(master.refused() == refused);
}

TEST_CASE("access: TLS to a master without it is refused, not spoken in the clear") {
  const Keys keys;
  if (!keys.certify()) return;
  Remote master(line("secret_file", keys.secret()));
  master.client(line("secret_file", keys.secret()) + keys.tls("ca"));
  const Ended asked = master.ctl("status");
  CHECK(asked.status == 69);
  CHECK(linesOf(asked.err) == 1);
  CHECK(contains(asked.err, "TLS"));
  CHECK(eventually([&] { return master.refused() == 1; }));
}

TEST_CASE("access: a start that would be unsafe or cannot be is one line and a status") {
  const Keys keys;
  const auto starts = [&](const std::string& program, const std::string& common, const std::string& master) {
    const std::string config = keys.place().configure("", master, "", common);
    const Ended ended = execute("timeout 20 " FLUXON_BIN "/" + program + " --config " + config);
    INFO(program << ": " << ended.err);
    CHECK(linesOf(ended.err) == 1);
    return ended;
  };
  const std::string listen = line("listen", "127.0.0.1:0"), secret = line("secret_file", keys.secret());
  const std::string remote = line("master", "127.0.0.1:1");

  const Ended open = starts("fluxon-master", "", line("listen", "0.0.0.0:0"));
  CHECK(open.status == 78);
  CHECK(contains(open.err, "fluxon.toml:"));
  CHECK(contains(open.err, "secret_file"));

  writeFile(keys.file("loose"), "a secret that anybody can read\n", 0644);
  CHECK(starts("fluxon-master", line("secret_file", keys.file("loose")), listen).status == 77);
  CHECK(starts("fluxon-owner", line("secret_file", keys.file("loose")) + remote, "").status == 77);
  CHECK(starts("fluxonctl status", line("secret_file", keys.file("loose")) + remote, "").status == 77);
  writeFile(keys.file("short"), "short\n");
  CHECK(starts("fluxon-master", line("secret_file", keys.file("short")), listen).status == 78);
  CHECK(starts("fluxon-master", line("secret_file", keys.file("absent")), listen).status == 71);

  CHECK(starts("fluxon-master", secret + line("tls_ca", keys.file("absent")), listen).status == 78);  // and no certificate
  CHECK(starts("fluxon-owner", secret + line("tls_ca", keys.secret()) + remote, "").status == 78);    // not PEM
  CHECK(starts("fluxon-owner", secret + line("tls_ca", keys.file("absent")) + remote, "").status == 71);
  CHECK(starts("fluxon-owner", secret + line("tls_certificate", "/c") + line("tls_key", "/k") + remote, "").status == 78);
}

TEST_CASE("access: certificates and keys that do not fit are refused at start") {
  const Keys keys;
  if (!keys.certify()) return;
  const auto starts = [&](const std::string& certificate, const std::string& key) {
    const std::string config =
        keys.place().configure("", line("listen", "127.0.0.1:0"), "", line("tls_certificate", certificate) + line("tls_key", key));
    const Ended ended = execute("timeout 20 " FLUXON_BIN "/fluxon-master --config " + config);
    INFO(ended.err);
    CHECK(linesOf(ended.err) == 1);
    return ended.status;
  };
  CHECK(starts(keys.file("server.pem"), keys.file("client.key")) == 78);
  CHECK(starts(keys.file("server.key"), keys.file("server.key")) == 78);
  CHECK(starts(keys.file("server.pem"), keys.file("server.pem")) == 78);
  REQUIRE(::chmod(keys.file("server.key").c_str(), 0644) == 0);
  CHECK(starts(keys.file("server.pem"), keys.file("server.key")) == 77);
}

TEST_CASE("access: a port that is taken is one line and a status") {
  Remote first("");
  const Place place;
  const std::string config = place.configure("", line("listen", first.address()));
  const Ended second = execute("timeout 20 " FLUXON_BIN "/fluxon-master --config " + config);
  CHECK(second.status == 69);
  CHECK(linesOf(second.err) == 1);
  CHECK(contains(second.err, first.address()));
  CHECK_FALSE(fs::exists(place.root() + "/t/.master/socket"));
}

TEST_CASE("access: the socket of this host goes on beside the port") {
  const Keys keys;
  Remote master(line("secret_file", keys.secret()));
  CHECK(master.ctl("status").status == 0);  // its own configuration names no other master
  master->start("n0");
  putAndGet(*master);
  CHECK(master.refused() == 0);
}

TEST_CASE("access: from another host, with a folder of its own, values are put and pages of the wrong host are not read") {
  const Keys keys;
  const std::string address = execute("hostname -I").out;
  const std::string self = address.substr(0, address.find_first_of(" \n"));
  if (self.empty() || contains(self, ":")) {
    MESSAGE("SKIPPED: (machine) this host has no address but loopback");
    return;
  }
  const std::string secret = line("secret_file", keys.secret());
  Remote master(secret, line("listen", "0.0.0.0:0"));
  const std::string port = master.address().substr(7);
  // Another root stands for another host.
  const Place& there = keys.place();
  const std::string config = there.configure("", "", "", secret + line("master", self + port));
  const auto ctl = [&](const std::string& arguments) { return execute(FLUXON_BIN "/fluxonctl --config " + config + " " + arguments); };
  std::string output;
  REQUIRE(run(FLUXON_BIN "/fluxonctl --config " + config + " up --detach --log-dir " + there.folder(), output) == 0);
  CHECK(contains(output, "fluxon-owner[n0] is ready"));
  CHECK_FALSE(contains(output, "fluxon-master"));
  CHECK(execute("echo hello | " FLUXON_BIN "/fluxonctl --config " + config + " put greeting").status == 0);
  CHECK(ctl("get greeting").out == "hello\n");
  CHECK(contains(ctl("members").out, "joined"));
  CHECK(contains(ctl("metrics n0").out, "fluxon_owner_"));  // of this host
  const Ended far = ctl("metrics master");
  CHECK(far.status == 69);
  CHECK(contains(far.err, "of another host"));
  CHECK(linesOf(far.err) == 1);
  CHECK(ctl("down").status == 0);
  CHECK(contains(master->log("master"), "node n0 leaves"));
}

TEST_CASE("access: another user is refused on the master's socket even if its mode lets him in") {
  if (::geteuid() != 0) {
    MESSAGE("SKIPPED: only root can be another user");
    return;
  }
  Cluster cluster({.nodes = {}});
  const std::string socket = cluster.root() + "/t/.master/socket";
  for (const char* folder : {"", "/t", "/t/.master"}) REQUIRE(::chmod((cluster.root() + folder).c_str(), 0755) == 0);
  REQUIRE(::chmod(socket.c_str(), 0666) == 0);
  const auto as = [&](uid_t user) {
    return waitFor(inChild([&] {
      if (::setresuid(user, user, user) != 0) return 2;
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path, socket.c_str(), socket.size());
      const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const timeval patience{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 3;
      char byte = 0;
      return ::recv(fd, &byte, 1, 0) == 0 ? 1 : 0;  // 1: hung up on; 0: waited for
    }));
  };
  CHECK(as(65534) == 1);
  CHECK(cluster.metric("master", kRefused) == 1);
  CHECK(contains(cluster.log("master"), "of user 65534: the socket is for user 0 and root"));
  CHECK(as(0) == 0);
  CHECK(cluster.metric("master", kRefused) == 1);
}
