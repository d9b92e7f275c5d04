// link_tcp [--congestion NAME]: values pulled through the tcp link beside plain blocking sockets that do the same work.
//
// Source and target are two processes on the loopback. A stream has kAhead values asked for, and asks for the next when one is there
// with all its bytes checked; the values go around kFootprint bytes on both sides, all populated before. The plain side has a thread
// and a connection a stream on each side, asks with 16 bytes, and sends pieces of the same length, each behind a header with its
// crc32c that the target checks. Both use the same congestion control and number of connections. Rounds take turns. The lines of
// one value at a time show what the ways between control thread and link cost. scripts/bench link-tcp runs it.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/hash.h"
#include "link/crc32c.h"
#include "link/tcp_link.h"
#include "measure.h"
#include "shm/directory_writer.h"
#include "shm/segment_format.h"

namespace fluxon::bench {
namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
constexpr uint64_t kFootprint = 256 * kMiB;
constexpr uint64_t kRoundBytes = 256 * kMiB;
constexpr uint64_t kSizes[] = {64 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};
constexpr unsigned kStreams[] = {1, 4};
constexpr uint64_t kAhead = 2;
constexpr uint64_t kPiece = 1 * kMiB;
constexpr int kRounds = 9;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::_Exit(71);
}

char* populated(uint64_t bytes) {
  void* const map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (map == MAP_FAILED) fail("mmap");
  std::memset(map, 1, bytes);
  return static_cast<char*>(map);
}

std::string keyOf(uint64_t size, uint64_t index) { return std::to_string(size) + "/" + std::to_string(index); }

struct Header {
  uint64_t length;
  uint64_t crc;
};

void all(ssize_t (*call)(int, void*, size_t, int), int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = call(fd, static_cast<char*>(data) + done, bytes - done, MSG_WAITALL | MSG_NOSIGNAL);
    if (n == 0) std::_Exit(0);
    if (n < 0) fail("plain socket");
    done += static_cast<size_t>(n);
  }
}

int tcpSocket(const std::string& congestion) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto nameBytes = static_cast<socklen_t>(congestion.size());
  if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), nameBytes) != 0) fail("congestion control");
  return fd;
}

// --- source process

struct Ports {
  uint16_t link, plain;
};

void servePlain(int fd, const char* values) {
  for (uint64_t asked[2];;) {
    all(::recv, fd, asked, sizeof asked);
    for (uint64_t at = 0; at < asked[1]; at += kPiece) {
      const char* const from = values + asked[0] + at;
      Header header{std::min(kPiece, asked[1] - at), 0};
      header.crc = link::crc32c(from, header.length);
      iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(from), header.length}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
      if (n != static_cast<ssize_t>(sizeof header + header.length)) std::_Exit(0);
    }
  }
}

// Ends with its parent.
[[noreturn]] void source(const std::string& congestion, int tell) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto shape = shm::DirectoryWriter::shapeFor(65536, kFootprint);
  char* const directory = populated(shm::directoryFileBytes(shape.buckets, shape.overflowSlots));
  char* const keys = populated(shm::keysFileBytes(shape.keysBytes));
  char* const segment = populated(shm::kSegmentDataOffset + kFootprint);
  std::memset(directory, 0, shm::directoryFileBytes(shape.buckets, shape.overflowSlots));
  std::memset(segment, 0, shm::kSegmentDataOffset);
  auto* head = reinterpret_cast<shm::SegmentHeader*>(segment);
  std::memcpy(head->file.magic, shm::kSegmentMagic, 8);
  head->file.version = shm::kFormatVersion;
  head->file.headerBytes = sizeof(shm::SegmentHeader);
  head->file.fileBytes = shm::kSegmentDataOffset + kFootprint;
  head->file.incarnation = 9;
  head->dataBytes = kFootprint;
  shm::DirectoryWriter writer(shm::DirectoryWriter::layout(directory, keys, shape, Incarnation(9), "bench", "source"), shape);
  for (const uint64_t size : kSizes) {
    for (uint64_t i = 0; i < kFootprint / size; ++i) {
      const std::string key = keyOf(size, i);
      const uint32_t slot = writer.grant(key, keyHash(key), i * size, size, 0, OperationId(1)).value();
      writer.submit(slot);
      writer.commit(slot, PutId(1));
    }
  }
  writer.setServing(Incarnation(5));
  writer.setLease(INT64_MAX);
  const shm::DirectoryView view =
      shm::DirectoryView::over(directory, shm::directoryFileBytes(shape.buckets, shape.overflowSlots), keys,
                               shm::keysFileBytes(shape.keysBytes), segment, shm::kSegmentDataOffset + kFootprint)
          .value();
  auto* const hazards = reinterpret_cast<shm::ClientFile*>(populated(sizeof(shm::ClientFile)));
  std::memset(static_cast<void*>(hazards), 0, sizeof *hazards);
  link::TcpLink::Settings settings;
  settings.congestionControl = congestion;
  const auto served = link::TcpLink::start(settings, link::Secret(), "source", view, *hazards);
  if (!served) std::_Exit(70);

  const int listener = tcpSocket(congestion);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&at), bytes) != 0 || ::listen(listener, 16) != 0) fail("listen");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &bytes);
  const std::string& address = served.value()->address();
  const Ports ports{static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))), ntohs(at.sin_port)};
  if (::write(tell, &ports, sizeof ports) != sizeof ports) fail("pipe");
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::thread(servePlain, fd, view.segment).detach();
  }
}

// --- target process

struct Target {
  std::unique_ptr<link::TcpLink> link;
  link::PeerAddress peer;
  char* memory;
  std::vector<int> sockets;  // one a stream
  uint64_t next = 0;

  // Seconds for a round.
  double byLink(uint64_t size, unsigned streams, uint64_t ahead) {
    const uint64_t count = kRoundBytes / size, around = kFootprint / size;
    uint64_t begun = 0, ended = 0;
    const auto ask = [&](uint64_t n) {
      std::vector<link::Fetch> fetches;
      for (; n > 0 && begun < count; --n, ++begun) {
        const std::string key = keyOf(size, begun % around);
        fetches.push_back({++next, key, keyHash(key), PutId(1), 0, memory + begun % around * size, size, bootTime() + seconds(60)});
      }
      link->fetch(peer, std::move(fetches));
    };
    const int64_t from = nowNs();
    ask(streams * ahead);
    while (ended < count) {
      pollfd waiting{link->eventFd(), POLLIN, 0};
      ::poll(&waiting, 1, -1);
      const link::LinkEvents events = link->reap();
      for (const link::Fetched& each : events.fetched) {
        if (!each.error.ok()) {
          std::fprintf(stderr, "link_tcp: %s\n", each.error.message().c_str());
          std::exit(70);
        }
      }
      ended += events.fetched.size();
      ask(events.fetched.size());
    }
    return static_cast<double>(nowNs() - from) * 1e-9;
  }

  double byPlain(uint64_t size, unsigned streams, uint64_t ahead) {
    const uint64_t count = kRoundBytes / size / streams;
    const auto stream = [&](unsigned s) {
      const auto offset = [&](uint64_t i) { return (s * count + i) % (kFootprint / size) * size; };
      const auto ask = [&](uint64_t i) {
        uint64_t asked[2] = {offset(i), size};
        const auto send = [](int fd, void* data, size_t bytes, int flags) { return ::send(fd, data, bytes, flags); };
        if (i < count) all(send, sockets[s], asked, sizeof asked);
      };
      for (uint64_t i = 0; i < ahead; ++i) ask(i);
      for (uint64_t i = 0; i < count; ++i) {
        for (uint64_t at = 0; at < size; at += kPiece) {
          Header header;
          all(::recv, sockets[s], &header, sizeof header);
          char* const to = memory + offset(i) + at;
          all(::recv, sockets[s], to, header.length);
          if (link::crc32c(to, header.length) != header.crc) fail("wrong checksum");
        }
        ask(i + ahead);
      }
    };
    const int64_t from = nowNs();
    std::vector<std::thread> others;
    for (unsigned s = 1; s < streams; ++s) others.emplace_back(stream, s);
    stream(0);
    for (std::thread& each : others) each.join();
    return static_cast<double>(nowNs() - from) * 1e-9;
  }
};

int run(const std::string& congestion) {
  int ready[2];
  if (::pipe(ready) != 0) fail("pipe");
  const pid_t child = ::fork();
  if (child == 0) source(congestion, ready[1]);
  ::close(ready[1]);
  Ports ports;
  if (::read(ready[0], &ports, sizeof ports) != sizeof ports) fail("the source did not start");
  auto* const hazards = reinterpret_cast<shm::ClientFile*>(populated(sizeof(shm::ClientFile)));
  const auto started = [&](unsigned connections) {
    link::TcpLink::Settings settings;
    settings.listen.enabled = false;
    settings.congestionControl = congestion;
    settings.connectionsPerPeer = connections;
    auto link = link::TcpLink::start(settings, link::Secret(), "target", shm::DirectoryView{}, *hazards);
    if (link) return std::move(link.value());
    std::fprintf(stderr, "link_tcp: %s\n", link.error().message().c_str());
    std::exit(70);
  };
  Target target{started(1), {"source", {}, "127.0.0.1:" + std::to_string(ports.link)}, populated(kFootprint), {}};
  for (unsigned s = 0; s < 4; ++s) {
    target.sockets.push_back(tcpSocket(congestion));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(ports.plain);
    if (::connect(target.sockets.back(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fail("connect");
  }
  std::printf("congestion control %s on both sides, %s, pieces of %llu KiB, crc32c on both sides\n", congestion.c_str(),
              target.link->uring() ? "io_uring" : "poll()", static_cast<unsigned long long>(kPiece / kKiB));
  double least = 1e9, leastGbs = 0;
  for (const unsigned streams : kStreams) {
    target.link = started(streams);
    for (const uint64_t ahead : {kAhead, uint64_t{1}}) {
      for (const uint64_t size : kSizes) {
        target.byLink(size, streams, ahead);  // connections, windows
        target.byPlain(size, streams, ahead);
        std::vector<double> ratios, links, plains;
        for (int r = 0; r < kRounds; ++r) {
          links.push_back(target.byLink(size, streams, ahead));
          plains.push_back(target.byPlain(size, streams, ahead));
          ratios.push_back(plains.back() / links.back());
        }
        const double gbs = static_cast<double>(kRoundBytes) * 1e-9 / median(links), ratio = median(ratios);
        std::printf("%5llu KiB, %u stream%s, %s   link %5.2f GB/s   plain %5.2f GB/s   link / plain %.3f\n",
                    static_cast<unsigned long long>(size / kKiB), streams, streams == 1 ? " " : "s",
                    ahead == 1 ? "one at a time" : "two ahead    ", gbs, static_cast<double>(kRoundBytes) * 1e-9 / median(plains), ratio);
        std::fflush(stdout);
        if (ahead == kAhead && size >= kMiB && ratio < least) {
          least = ratio;
          leastGbs = gbs;
        }
      }
    }
  }
  ::kill(child, SIGKILL);
  print({"link-tcp", leastGbs, "GB/s", least,
         "plain blocking sockets, same pieces, crc32c and congestion control; the worst of 1, 4, 16 MiB", "ratio >= 0.9", least >= 0.9});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) { return fluxon::bench::run(fluxon::bench::argument(argc, argv, "--congestion", "cubic")); }
