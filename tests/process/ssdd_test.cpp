// A real fluxon-ssdd whose owner is this test: what it says, keeps and gives back over the file of an ssdd.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/bell.h"
#include "base/clock.h"
#include "cluster.h"
#include "loop_device.h"
#include "shm/mapped_file.h"
#include "shm/paths.h"
#include "shm/segment_format.h"
#include "ssd/channel.h"
#include "texts.h"

namespace fluxon::test {
namespace {

using ssd::Message;
using ssd::MessageKind;

constexpr uint64_t kSegmentBytes = uint64_t{32} << 20;
constexpr uint64_t kFar = kSegmentBytes / 2;  // where loads go

// The owner of node n0: its socket, and for each ssdd that attaches a file and bells.
class Owner {
 public:
  explicit Owner(const Place& place) : paths_{place.root(), "t", false} {
    REQUIRE(shm::makeDirectories(paths_, paths_.nodeDir("n0"), -1).ok());
    listen();
    auto segment = shm::createFile(paths_.file("n0", "segment"), shm::kSegmentDataOffset + kSegmentBytes, 0600, -1);
    REQUIRE(segment.ok());
    segmentFd_ = std::move(segment).value();
    segment_ = shm::MappedFile::map(segmentFd_.get(), shm::Access::readWrite, "segment").value();
    auto& header = *reinterpret_cast<shm::SegmentHeader*>(segment_.data());
    fill(header.file, shm::kSegmentMagic, segment_.bytes(), shm::kSegmentDataOffset);
    header.dataBytes = kSegmentBytes;
  }

  void listen() {
    listener_ = shm::Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, paths_.file("n0", "socket").c_str());
    ::unlink(address.sun_path);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 8) == 0);
  }

  ssd::SsddAttach accept() {
    pollfd waiting{listener_.get(), POLLIN, 0};
    REQUIRE_MESSAGE(::poll(&waiting, 1, 20'000) == 1, "nobody attaches");
    socket_ = shm::Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ssd::SsddAttach request{};
    REQUIRE(::recv(socket_.get(), &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));
    CHECK(std::string(request.magic, 8) == ssd::kSsddAttachMagic);
    CHECK(request.version == ssd::kSsddVersion);
    return request;
  }
  void refuse(Code code) {
    answer(code, {});
    socket_ = shm::Descriptor();
  }
  void take() {
    fileFd_ = shm::Descriptor(::memfd_create("ssdd", MFD_CLOEXEC));
    REQUIRE(::ftruncate(fileFd_.get(), sizeof(ssd::SsddFile)) == 0);
    file_ = shm::MappedFile::map(fileFd_.get(), shm::Access::readWrite, "ssdd").value();
    fill(file().header.file, ssd::kSsddMagic, file_.bytes(), 4096);
    for (shm::Descriptor* bell : {&ourBell_, &theirBell_}) *bell = shm::Descriptor(bell::make());
    channel_.emplace(file(), ssd::Channel::End::owner, theirBell_.get());
    answer(Code::ok, {fileFd_.get(), segmentFd_.get(), ourBell_.get(), theirBell_.get()});
  }
  ssd::SsddAttach attach() {
    const ssd::SsddAttach request = accept();
    take();
    return request;
  }
  void hangUp() { socket_ = shm::Descriptor(); }
  // Has the ssdd ended the connection?
  void waitForTheirEnd() {
    pollfd waiting{socket_.get(), POLLIN, 0};
    REQUIRE_MESSAGE(::poll(&waiting, 1, 20'000) == 1, "the connection does not end");
    char byte;
    CHECK(::recv(socket_.get(), &byte, 1, 0) == 0);
  }

  void send(const Message& message) { channel_->send(message); }
  Message receive() {
    Message message;
    for (;;) {
      channel_->awake();
      const auto received = channel_->receive(message);
      REQUIRE_MESSAGE(received != ssd::Channel::Received::broken, channel_->why());
      if (received == ssd::Channel::Received::message && message.kind != MessageKind::alive) return message;
      if (received == ssd::Channel::Received::message) continue;
      if (!channel_->sleep()) continue;
      pollfd waiting{ourBell_.get(), POLLIN, 0};
      REQUIRE_MESSAGE(::poll(&waiting, 1, 20'000) == 1, "no message");
      REQUIRE(bell::clear(ourBell_.get()));
    }
  }
  Message expect(MessageKind kind, uint64_t id) {
    Message message = receive();
    CHECK(static_cast<int>(message.kind) == static_cast<int>(kind));
    CHECK(message.id == id);
    return message;
  }
  // Puts a value into the segment, has it persisted and decided.
  void keep(uint64_t id, const std::string& key, const std::string& value) {
    std::memcpy(memory(0), value.data(), value.size());
    send({.kind = MessageKind::persist, .id = id, .key = key, .putId = PutId(id), .offset = 0, .bytes = value.size()});
    CHECK(codeName(expect(MessageKind::persisted, id).code) == std::string("ok"));
    std::memset(memory(0), 0, value.size());
    send({.kind = MessageKind::decided, .id = id});
  }
  Code load(uint64_t id, const std::string& key, uint64_t putId, uint64_t bytes) {
    std::memset(memory(kFar), 0, bytes);
    send({.kind = MessageKind::load, .id = id, .key = key, .putId = PutId(putId), .offset = kFar, .bytes = bytes});
    for (;;) {
      const Message message = receive();
      CHECK(message.id == id);
      if (message.kind == MessageKind::loaded) return message.code;
      CHECK(message.kind == MessageKind::progress);
    }
  }
  std::map<std::string, uint64_t> list(uint64_t id) {
    send({.kind = MessageKind::list, .id = id});
    std::map<std::string, uint64_t> all;
    for (;;) {
      const Message message = receive();
      if (message.kind == MessageKind::done) return all;
      CHECK(message.kind == MessageKind::listed);
      all[message.key] = message.bytes;
    }
  }
  char* memory(uint64_t offset) { return segment_.data() + shm::kSegmentDataOffset + offset; }
  std::string at(uint64_t offset, uint64_t bytes) { return {memory(offset), bytes}; }
  ssd::SsddFile& file() { return *reinterpret_cast<ssd::SsddFile*>(file_.data()); }
  void ring() { bell::ring(theirBell_.get()); }

 private:
  static void fill(shm::FileHeader& header, const char* magic, uint64_t bytes, uint64_t headerBytes) {
    std::memcpy(header.magic, magic, 8);
    header.version = shm::kFormatVersion;
    header.headerBytes = static_cast<uint32_t>(headerBytes);
    header.fileBytes = bytes;
    header.incarnation = 7;
  }
  void answer(Code code, std::vector<int> descriptors) {
    ssd::SsddAttached reply{};
    std::memcpy(reply.magic, ssd::kSsddAttachMagic, 8);
    reply.version = ssd::kSsddVersion;
    reply.code = static_cast<uint32_t>(code);
    reply.clockNs = bootTime().ns;
    iovec io{&reply, sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * ssd::kSsddDescriptors)] = {};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof(int) * ssd::kSsddDescriptors);
      std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof(int) * ssd::kSsddDescriptors);
    }
    REQUIRE(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof reply));
  }

  shm::Paths paths_;
  shm::Descriptor listener_, socket_, segmentFd_, fileFd_, ourBell_, theirBell_;
  shm::MappedFile segment_, file_;
  std::optional<ssd::Channel> channel_;
};

class Ssdd {
 public:
  Ssdd(const Place& place, const std::string& config, const std::string& name = "ssdd") : log_(place.folder() + "/" + name + ".log") {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    pid_ = inChild([&] {
      ::dup2(::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      ::dup2(ready[1], 9);
      ::fcntl(9, F_SETFD, 0);  // it may have been 9, with FD_CLOEXEC
      ::execl(FLUXON_BIN "/fluxon-ssdd", "fluxon-ssdd", "--config", config.c_str(), "--ready-fd", "9", nullptr);
      return 127;
    });
    ::close(ready[1]);
    ready_ = shm::Descriptor(ready[0]);
  }
  ~Ssdd() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), waitFor(pid_);
  }
  void waitUntilReady() {
    pollfd waiting{ready_.get(), POLLIN, 0};
    char byte;
    REQUIRE_MESSAGE((::poll(&waiting, 1, 20'000) == 1 && ::read(ready_.get(), &byte, 1) == 1), log());
  }
  bool isReady() {
    pollfd waiting{ready_.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) == 1;
  }
  void signal(int signal) { ::kill(pid_, signal); }
  int end(int signal) {
    ::kill(pid_, signal);
    return waitFor(std::exchange(pid_, 0));
  }
  std::string log() const { return logIn(log_); }
  std::string page(const std::string& path) const {
    std::string address;
    REQUIRE(eventually([&] {
      const std::string text = log();
      const size_t at = text.find("http 127.0.0.1:");
      if (at == std::string::npos || text.find('\n', at) == std::string::npos) return false;
      address = text.substr(at + 5, text.find('\n', at) - at - 5);
      return true;
    }));
    return httpGet(address, path);
  }

 private:
  std::string log_;
  pid_t pid_ = 0;
  shm::Descriptor ready_;
};

std::string configured(const Place& place, const std::string& limit = "16MiB", const std::string& ssdd = "", const std::string& disk = "") {
  const std::string folder = disk.empty() ? place.folder() : disk;
  return place.configure("large_file_paths = [\"" + folder + "/disk\"]\nlarge_limit_size = [\"" + limit + "\"]\n[ssdd]\n" + ssdd);
}

// A file system on which nothing can be written while it is frozen.
TEST_CASE("ssdd: without limits it says so and ends with 78") {
  const Place place;
  const Ended ended = execute(FLUXON_BIN "/fluxon-ssdd --config " + place.configure());
  CHECK(ended.status == 78);
  CHECK(ended.err == "fluxon-ssdd: not enabled (owner.large_limit_size is empty)\n");
}

TEST_CASE("ssdd: values come back bit by bit, whatever their size, with each backend and mode") {
  for (const char* lines : {"", "uring_mode = \"iovec\"\n", "backend = \"psync\"\n"}) {
    CAPTURE(std::string(lines));
    const Place place;
    Owner owner(place);
    Ssdd ssdd(place, configured(place, "64MiB", lines));
    const ssd::SsddAttach request = owner.attach();
    CHECK(request.life != 0);
    CHECK(request.entries == 0);
    CHECK(request.capacityBytes == uint64_t{64} << 20);
    ssdd.waitUntilReady();
    uint64_t id = 0;
    for (const size_t bytes : {0, 1, 511, 512, 513, 4095, 4096, 4097, 65537, (4 << 20) - 1, (8 << 20) + 1}) {
      ++id;
      const std::string key = "key\n" + std::to_string(bytes), value = valueOf(id, bytes);
      owner.keep(id, key, value);
      CHECK(owner.load(1000 + id, key, id, bytes) == Code::ok);
      CHECK(owner.at(kFar, bytes) == value);
    }
    CHECK(owner.load(2000, "nothing", 1, 10) == Code::miss);
    CHECK(owner.list(3000).size() == id);
    owner.send({.kind = MessageKind::scrub, .id = 4000});
    Message message = owner.receive();
    while (message.kind == MessageKind::progress) message = owner.receive();
    CHECK(message.kind == MessageKind::done);
    CHECK(message.bytes == id);
    CHECK(message.offset == 0);
    const std::string metrics = ssdd.page("/metrics");
    CHECK(has(metrics, "fluxon_ssdd_entries 11\n"));
    CHECK(has(metrics, "fluxon_ssdd_attached 1\n"));
    CHECK(has(metrics, "fluxon_ssdd_loads_total 12\n"));
    CHECK(has(metrics, std::string("fluxon_ssdd_engine{engine=\"") + (has(lines, "psync") ? "threads" : "io_uring")));
    CHECK(has(metrics, "/disk/t_cluster_kv_ssd_storage/n0\"} 11\n"));
    CHECK(has(ssdd.page("/health"), "\"healthy\":true"));
    CHECK(eventually([&] { return owner.file().status.loads == 12; }));
    CHECK(owner.file().status.entries == 11);
    CHECK(eventually([&] { return owner.file().status.scrubChecked == id; }));
    CHECK(owner.file().status.scrubTotal == id);
    CHECK(owner.file().status.device[0].writes == 11);
    CHECK(ssdd.end(SIGTERM) == 0);
  }
}

TEST_CASE("ssdd: it stays when its owner goes, and the next one is told what there is") {
  const Place place;
  std::optional<Owner> owner(place);
  Ssdd ssdd(place, configured(place));
  const ssd::SsddAttach first = owner->attach();
  owner->keep(1, "kept", valueOf(1, 5000));
  std::memcpy(owner->memory(0), "open", 4);
  owner->send({.kind = MessageKind::persist, .id = 2, .key = "undecided", .putId = PutId(2), .offset = 0, .bytes = 4});
  owner->expect(MessageKind::persisted, 2);
  owner.reset();
  CHECK(eventually([&] { return has(ssdd.page("/health"), "\"state\":\"seeking\""); }));
  owner.emplace(place);
  const ssd::SsddAttach second = owner->attach();
  CHECK(second.life == first.life);
  CHECK(second.entries == 1);
  CHECK(owner->list(1) == std::map<std::string, uint64_t>{{"kept", 5000}});
  CHECK(owner->load(2, "kept", 1, 5000) == Code::ok);
  CHECK(owner->at(kFar, 5000) == valueOf(1, 5000));
}

TEST_CASE("ssdd: what an owner refuses is thrown away, and offered empty under a new life") {
  const Place place;
  Owner owner(place);
  Ssdd ssdd(place, configured(place));
  const ssd::SsddAttach first = owner.attach();
  owner.keep(1, "k", "value");
  owner.hangUp();
  const ssd::SsddAttach second = owner.accept();
  CHECK(second.entries == 1);
  owner.refuse(Code::fenced);
  const ssd::SsddAttach third = owner.attach();
  CHECK(third.entries == 0);
  CHECK(third.life != first.life);
  CHECK(owner.load(2, "k", 1, 5) == Code::miss);
}

TEST_CASE("ssdd: an owner that is not ready is asked again") {
  const Place place;
  Owner owner(place);
  Ssdd ssdd(place, configured(place));
  for (int i = 0; i < 3; ++i) {
    owner.accept();
    owner.refuse(Code::unavailable);
  }
  CHECK_FALSE(ssdd.isReady());
  owner.attach();
  ssdd.waitUntilReady();
  owner.keep(1, "k", "value");
}

TEST_CASE("ssdd: nonsense in the file ends the connection and nothing else") {
  const Place place;
  Owner owner(place);
  Ssdd ssdd(place, configured(place));
  owner.attach();
  ssdd.waitUntilReady();
  owner.keep(1, "k", "value");
  CHECK(owner.load(2, "k", 1, 5) == Code::ok);  // so it has been decided
  SUBCASE("a tail") { owner.file().toSsdd.tail += 4; }
  SUBCASE("a kind") {
    owner.file().toSsdd.bytes[owner.file().toSsdd.tail % ssd::kRingBytes] = 99;
    owner.file().toSsdd.tail += sizeof(ssd::Frame);
  }
  owner.ring();
  owner.waitForTheirEnd();
  const ssd::SsddAttach again = owner.attach();
  CHECK(again.entries == 1);
  CHECK(owner.load(2, "k", 1, 5) == Code::ok);
}

TEST_CASE("ssdd: what lies outside of the segment is not touched") {
  const Place place;
  Owner owner(place);
  Ssdd ssdd(place, configured(place));
  owner.attach();
  owner.keep(1, "k", "value");
  for (const uint64_t offset : {kSegmentBytes - 4, kSegmentBytes, UINT64_MAX - 2}) {
    owner.send({.kind = MessageKind::persist, .id = 2, .key = "x", .putId = PutId(2), .offset = offset, .bytes = 5});
    CHECK(owner.expect(MessageKind::persisted, 2).code == Code::protocol);
    owner.send({.kind = MessageKind::load, .id = 3, .key = "k", .putId = PutId(1), .offset = offset, .bytes = 5});
    CHECK(owner.expect(MessageKind::loaded, 3).code == Code::protocol);
  }
}

TEST_CASE("ssdd: a second one of a node waits for the first, and says what for") {
  const Place place;
  Owner owner(place);
  const std::string config = configured(place);
  std::optional<Ssdd> first(std::in_place, place, config);
  owner.attach();
  first->waitUntilReady();
  Ssdd second(place, config, "second");
  CHECK(eventually([&] { return has(second.log(), "is in use by another process"); }));
  const std::string health = second.page("/health");
  CHECK(has(health, "\"state\":\"opening\""));
  CHECK(has(health, "\"healthy\":false"));
  CHECK(has(health, "is in use by another process"));
  CHECK(first->end(SIGKILL) == -SIGKILL);
  CHECK(owner.attach().entries == 0);
  second.waitUntilReady();
}

TEST_CASE("ssdd: SIGTERM ends it within seconds, with loads and persists queued, while it opens and while it seeks") {
  const Place place;
  Owner owner(place);
  const std::string config = configured(place, "64MiB");
  Ssdd ssdd(place, config);
  SUBCASE("busy") {
    owner.attach();
    constexpr uint64_t kBytes = 8 << 20;
    owner.keep(1, "k", valueOf(1, kBytes));
    for (uint64_t id = 2; id < 500; ++id) {
      owner.send({.kind = MessageKind::load, .id = id, .key = "k", .putId = PutId(1), .offset = kFar, .bytes = kBytes});
      const std::string key = std::to_string(id);
      owner.send({.kind = MessageKind::persist, .id = 1000 + id, .key = key, .putId = PutId(id), .offset = 0, .bytes = kBytes});
    }
    owner.receive();
  }
  SUBCASE("seeking") {
    CHECK(eventually([&] { return has(ssdd.page("/health"), "\"state\":\"seeking\""); }));
  }
  SUBCASE("opening") {
    owner.attach();
    ssdd.waitUntilReady();
    Ssdd second(place, config, "second");
    CHECK(eventually([&] { return has(second.page("/health"), "in use by another process"); }));
    const Time from = bootTime();
    CHECK(second.end(SIGTERM) == 0);
    CHECK(bootTime() - from < seconds(2));
  }
  const Time from = bootTime();
  CHECK(ssdd.end(SIGTERM) == 0);
  CHECK(bootTime() - from < seconds(5));
}

TEST_CASE("ssdd: a disk that does not answer holds up neither its pages nor its end") {
  static const std::string why = ssd::whyNoLoopDevices();
  if (!why.empty()) {
    MESSAGE("SKIPPED: " << why);
    return;
  }
  const ssd::TemporaryFolder folder;
  REQUIRE(ssd::mountFileSystem(folder.path, 96 << 20) == "");
  const std::string disk = folder.path + "/mounted";
  for (const char* backend : {"io_uring", "psync"}) {
    for (const bool answersAgain : {true, false}) {
      CAPTURE(std::string(backend));
      CAPTURE(answersAgain);
      const Place place;
      Owner owner(place);
      Ssdd ssdd(place, configured(place, "16MiB", "backend = \"" + std::string(backend) + "\"\n", disk));
      owner.attach();
      owner.keep(1, "k", "value");
      CHECK(owner.load(2, "k", 1, 5) == Code::ok);
      ssd::Freezer frozen(disk);
      owner.send({.kind = MessageKind::persist, .id = 3, .key = "x", .putId = PutId(3), .offset = 0, .bytes = 100'000});
      if (answersAgain) {
        CHECK(eventually([&] {
          const Time from = bootTime();
          const std::string health = ssdd.page("/health");
          CHECK(bootTime() - from < milliseconds(100));
          return has(health, "\"healthy\":false");
        }));
        CHECK(owner.file().status.device[0].oldestNs != 0);
        owner.expect(MessageKind::stalled, 3);
        CHECK(owner.receive().key == "k");  // evicted
        CHECK(eventually([&] { return owner.file().status.device[0].state == 3 && owner.file().status.device[0].stalled == 1; }));
        CHECK(has(ssdd.log(), "has ended no request for 4 s: it is not used until it answers, and what it holds is given up"));
        frozen.thaw();
        CHECK(owner.expect(MessageKind::persisted, 3).code == Code::unavailable);
        owner.keep(4, "y", "value");
        CHECK(owner.load(5, "y", 4, 5) == Code::ok);
        CHECK(eventually([&] { return has(ssdd.page("/health"), "\"healthy\":true"); }));
        CHECK(eventually([&] { return has(ssdd.log(), "serves again"); }));
        CHECK(ssdd.end(SIGTERM) == 0);
      } else {
        CHECK(eventually([&] { return !has(ssdd.page("/health"), "\"oldest_io_ms\":0,"); }));
        const Time from = bootTime();
        ssdd.signal(SIGTERM);
        CHECK(eventually([&] { return has(ssdd.log(), "a disk does not answer"); }));
        CHECK(bootTime() - from < seconds(5));
        frozen.thaw();  // the process is gone when the kernel has its last I/O back
        CHECK(ssdd.end(0) == 0);
      }
    }
  }
}

TEST_CASE("ssdd: its shards cannot be had: one line and the status of the reason") {
  const Place place;
  const std::string config = place.configure("large_file_paths = [\"/proc/none/disk\"]\nlarge_limit_size = [\"1GB\"]\n");
  const Ended ended = execute(FLUXON_BIN "/fluxon-ssdd --config " + config + " 2>&1 | grep -v info; exit ${PIPESTATUS[0]}");
  CHECK(has(ended.out, "fluxon-ssdd: operating system error: mkdir /proc/none/disk"));
  const std::string large = configured(place, "900TB");
  const Ended full = execute(FLUXON_BIN "/fluxon-ssdd --config " + large);
  CHECK(full.status == 75);
  CHECK(has(full.err, "fluxon-ssdd: no space: 900 TiB in 8 shards do not fit"));
}

}  // namespace
}  // namespace fluxon::test
