// link_tcp [--congestion NAME]: values pulled through the tcp link beside plain blocking sockets that do the same work.
//
// Source and target are two processes on the loopback. A stream has kAhead values asked for, and asks for the next when one is there
// with all its bytes checked; the values go around kFootprint bytes on both sides, all populated before. The plain side has a thread
// and a connection a stream on each side, asks with 16 bytes, and sends pieces of the same length, each behind a header with its
// crc32c that the target checks. Both use the same congestion control and number of connections. Rounds take turns. The lines of
// one value at a time show what the ways between control thread and link cost. scripts/bench link-tcp runs it.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/hash.h"
#include "link/tcp/tcp_link.h"
#include "measure.h"
#include "plain_tcp.h"
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
constexpr int kRounds = 9;

std::string keyOf(uint64_t size, uint64_t index) { return std::to_string(size) + "/" + std::to_string(index); }

// --- source process

struct Ports {
  uint16_t link, plain;
};

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
  link::tcp::Settings settings;
  settings.congestionControl = congestion;
  const auto served = link::tcp::TcpLink::start(settings, net::Secret(), "source", view, *hazards);
  if (!served) std::_Exit(70);

  uint16_t plain = 0;
  const int listener = listenPlain(congestion, plain);
  const std::string& address = served.value()->address();
  const Ports ports{static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))), plain};
  if (::write(tell, &ports, sizeof ports) != sizeof ports) fail("pipe");
  acceptPlain(listener, view.segment);
}

// --- target process

struct Target {
  std::unique_ptr<link::tcp::TcpLink> link;
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
        if (i < count) askPlain(sockets[s], offset(i), size);
      };
      for (uint64_t i = 0; i < ahead; ++i) ask(i);
      for (uint64_t i = 0; i < count; ++i) {
        receivePlain(sockets[s], memory + offset(i), size);
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
    link::tcp::Settings settings;
    settings.listen.enabled = false;
    settings.congestionControl = congestion;
    settings.connectionsPerPeer = connections;
    auto link = link::tcp::TcpLink::start(settings, net::Secret(), "target", shm::DirectoryView{}, *hazards);
    if (link) return std::move(link.value());
    std::fprintf(stderr, "link_tcp: %s\n", link.error().message().c_str());
    std::exit(70);
  };
  Target target{started(1), {"source", {}, "127.0.0.1:" + std::to_string(ports.link)}, populated(kFootprint), {}};
  for (unsigned s = 0; s < 4; ++s) target.sockets.push_back(connectPlain(ports.plain, congestion));
  std::printf("congestion control %s on both sides, %s, pieces of %llu KiB, crc32c on both sides\n", congestion.c_str(),
              target.link->engine().c_str(), static_cast<unsigned long long>(kPiece / kKiB));
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

int main(int argc, char** argv) {
  using fluxon::bench::argument;
  return fluxon::bench::oneSentence("link_tcp", [&] { return fluxon::bench::run(argument(argc, argv, "--congestion", "cubic")); });
}
