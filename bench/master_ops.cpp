// master_ops --cluster NAME --pid PID: what putStart and putDone in batches of 128 cost a real master.
//
// Each load is an owner in this process that has no memory: it registers a segment that exists in numbers only, and submits 128
// putStart, then their 128 putDone, kStreams such batches side by side. Counted are keys per second of the master's CPU time
// (/proc/PID/task/*/schedstat, with utime + stime as its witness): that is one core of the master, whatever this side takes.
//   new    every key is new; the table grows
//   over   the same keys again and again; extents that are over are released with the next batch
//   full   every key is new in a segment that is full: each put costs an eviction, and its reclaim order is answered
// Rounds of the three take turns. scripts/bench master-ops runs it.
#include <capnp/rpc-twoparty.h>
#include <dirent.h>
#include <kj/async-io.h>
#include <kj/debug.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <unordered_map>

#include "base/extent.h"
#include "measure.h"
#include "rpc/codec.h"
#include "shm/paths.h"

namespace fluxon::bench {
namespace {

constexpr int kRounds = 9;
constexpr uint64_t kRoundKeys = 65'536;
constexpr unsigned kBatch = 128;
constexpr unsigned kStreams = 2;
constexpr uint64_t kValueBytes = 4096;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr double kTarget = 200'000;

struct Cpu {
  double ran = 0;    // seconds on a core
  double ticks = 0;  // utime + stime, seconds
};
Cpu cpuOf(const std::string& pid) {
  Cpu cpu;
  const std::string tasks = "/proc/" + pid + "/task";
  DIR* const folder = ::opendir(tasks.c_str());
  if (!folder) return cpu;
  while (const dirent* entry = ::readdir(folder)) {
    uint64_t ns = 0;
    if (entry->d_name[0] != '.' && std::ifstream(tasks + "/" + entry->d_name + "/schedstat") >> ns)
      cpu.ran += static_cast<double>(ns) * 1e-9;
  }
  ::closedir(folder);
  std::string stat;
  std::getline(std::ifstream("/proc/" + pid + "/stat"), stat);
  unsigned long user = 0, system = 0;
  const size_t name = stat.rfind(')');
  if (name != std::string::npos)
    std::sscanf(stat.c_str() + name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  cpu.ticks = static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return cpu;
}

class Load final : private kj::TaskSet::ErrorHandler {
 public:
  struct Shape {
    const char* name;
    uint64_t segmentBytes;
    uint64_t distinctKeys;  // 0: every key is new
  };

  Load(kj::AsyncIoContext& io, const std::string& socket, Shape shape)
      : io_(io),
        shape_(shape),
        stream_(io.provider->getNetwork().parseAddress(("unix:" + socket).c_str()).wait(io.waitScope)->connect().wait(io.waitScope)),
        client_(*stream_),
        session_(nullptr),
        held_(shape.distinctKeys, kNone),
        tasks_(*this) {
    auto call = client_.bootstrap().castAs<schema::Master>().registerRequest();
    rpc::Registration registration;
    registration.node = std::string("bench-") + shape.name;
    registration.hostId = "bench";
    registration.incarnation = newIncarnation();
    registration.pid = static_cast<uint64_t>(::getpid());
    registration.segmentBytes = shape.segmentBytes;
    registration.maxKeys = 1 << 24;
    rpc::encode(registration, call.initRegistration());
    call.setOwner(kj::heap<OwnerServer>(*this));
    auto joined = call.send().wait(io.waitScope);
    KJ_REQUIRE(joined.getCode() == 0, "the master refuses the owner", joined.getDetail());
    session_ = joined.getSession();
  }

  const char* name() const { return shape_.name; }

  // Puts `keys` keys; returns when all are done.
  void put(uint64_t keys) {
    left_ = keys;
    auto paf = kj::newPromiseAndFulfiller<void>();
    finished_ = kj::mv(paf.fulfiller);
    beat();
    for (unsigned s = 0; s < kStreams; ++s) start(s);
    paf.promise.wait(io_.waitScope);
  }

  // Lets the lease go on while other loads have their turn.
  void beat() { submit(one(rpc::Heartbeat())); }

  uint64_t orders = 0, evicted = 0, refused = 0;

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  class OwnerServer final : public schema::Owner::Server {
   public:
    explicit OwnerServer(Load& load) : load_(load) {}
    kj::Promise<void> deliver(DeliverContext context) override {
      load_.received(context.getParams().getMessages());
      return kj::READY_NOW;
    }

   private:
    Load& load_;
  };

  struct Place {
    uint64_t key = 0;  // its number
    OperationId start;
    uint64_t offset = 0;  // of its extent
  };
  // A batch that is being put: first all are started, then all are done.
  struct Stream {
    std::vector<Place> places;
    size_t unanswered = 0;
    bool done = false;
  };
  struct Asked {
    unsigned stream = kStreams;  // kStreams: a report, whose reply says nothing
    size_t place = 0;
  };

  rpc::Request numbered(rpc::Request::Body body, Asked asked) {
    const OperationId id(++lastId_);
    asked_.emplace(id, asked);
    unanswered_.insert(id);
    return {id, std::move(body)};
  }
  std::vector<rpc::Request> one(rpc::Request::Body body) {
    std::vector<rpc::Request> requests;
    requests.push_back(numbered(std::move(body), {}));
    return requests;
  }

  void start(unsigned s) {
    Stream& stream = streams_[s];
    stream.places.clear();
    stream.done = false;
    std::vector<rpc::Request> requests;
    if (!over_.empty()) requests.push_back(numbered(rpc::Release{{}, std::exchange(over_, {})}, {}));
    for (; left_ > 0 && stream.places.size() < kBatch; --left_) {
      // Streams of one load never put the same key at once: there are many more keys than fit in their batches.
      const uint64_t number = nextKey_++;
      const uint64_t key = shape_.distinctKeys ? number % shape_.distinctKeys : number;
      char text[64];
      std::snprintf(text, sizeof text, "%s/layer/%016llx", shape_.name, static_cast<unsigned long long>(key * 0x9E3779B97F4A7C15ull));
      requests.push_back(numbered(rpc::PutStart{{}, text, kValueBytes, {}, {}, 5000, {}}, {s, stream.places.size()}));
      stream.places.push_back({key, requests.back().id, 0});
    }
    stream.unanswered = stream.places.size();
    if (!requests.empty()) submit(requests);
    if (left_ == 0 && idle() && finished_->isWaiting()) finished_->fulfill();
  }
  bool idle() const {
    return std::all_of(std::begin(streams_), std::end(streams_), [](const Stream& stream) { return stream.unanswered == 0; });
  }

  void finish(unsigned s) {
    Stream& stream = streams_[s];
    stream.done = true;
    std::vector<rpc::Request> requests;
    for (size_t i = 0; i < stream.places.size(); ++i) {
      requests.push_back(numbered(rpc::PutDone{{}, stream.places[i].start}, {s, i}));
    }
    stream.unanswered = stream.places.size();
    submit(requests);
  }

  void submit(const std::vector<rpc::Request>& requests) {
    auto call = session_.submitRequest();
    rpc::encode(requests, call.initRequests(static_cast<unsigned>(requests.size())));
    call.setLowestUnanswered(unanswered_.empty() ? lastId_ + 1 : unanswered_.begin()->value);
    answered_ = nullptr;
    tasks_.add(call.send().then([this](capnp::Response<schema::Session::SubmitResults> result) {
      received(result.getMessages());
      answered_ = kj::heap(kj::mv(result));  // dropped with the next call, as owners do
    }));
  }

  void received(capnp::List<schema::MasterMessage>::Reader messages) {
    for (const rpc::MasterMessage& message : rpc::decode(messages)) {
      if (const auto* const reply = std::get_if<rpc::Reply>(&message)) {
        replied(*reply);
        continue;
      }
      ++orders;
      if (const auto* const invalidate = std::get_if<rpc::Invalidate>(&message)) {
        submit(one(rpc::InvalidateDone{{}, invalidate->order}));
      } else if (const auto* const reclaim = std::get_if<rpc::Reclaim>(&message)) {
        // Nobody reads here.
        const size_t victims = reclaim->replicas.size();
        submit(one(rpc::ReclaimDone{{}, reclaim->order, std::vector<rpc::ReclaimResult>(victims, rpc::ReclaimResult::ok)}));
        evicted += victims;
      }
    }
  }

  void replied(const rpc::Reply& reply) {
    const auto found = asked_.find(reply.id);
    if (found == asked_.end()) return;
    const Asked asked = found->second;
    asked_.erase(found);
    unanswered_.erase(reply.id);
    KJ_REQUIRE(reply.code == Code::ok, "the master refuses", static_cast<unsigned>(reply.code), reply.detail.c_str());
    if (asked.stream == kStreams) return;
    Stream& stream = streams_[asked.stream];
    Place& place = stream.places[asked.place];
    if (!stream.done) {
      KJ_REQUIRE(reply.as<rpc::PutGranted>(), "a put is granted somewhere else");
      place.offset = reply.as<rpc::PutGranted>()->offset;
    } else if (!reply.as<rpc::PutEnded>() || !reply.as<rpc::PutEnded>()->published) {
      ++refused;
      over_.push_back(place.offset);
    } else if (shape_.distinctKeys) {
      const uint64_t old = std::exchange(held_[place.key], place.offset);
      if (old != kNone) over_.push_back(old);
    }
    if (--stream.unanswered > 0) return;
    if (stream.done) {
      start(asked.stream);
    } else {
      finish(asked.stream);
    }
  }

  void taskFailed(kj::Exception&& error) override {
    if (finished_.get() != nullptr && finished_->isWaiting()) return finished_->reject(kj::mv(error));
    std::fprintf(stderr, "master_ops: %s\n", error.getDescription().cStr());
  }

  kj::AsyncIoContext& io_;
  const Shape shape_;
  kj::Own<kj::AsyncIoStream> stream_;
  capnp::TwoPartyClient client_;
  schema::Session::Client session_;
  Stream streams_[kStreams];
  std::unordered_map<OperationId, Asked> asked_;
  std::set<OperationId> unanswered_;
  std::vector<uint64_t> held_;  // extent of each key, of a load with a bounded number of them
  std::vector<uint64_t> over_;  // extents to release
  uint64_t lastId_ = 0, nextKey_ = 0, left_ = 0;
  kj::Own<kj::PromiseFulfiller<void>> finished_;
  kj::Own<capnp::Response<schema::Session::SubmitResults>> answered_;
  kj::TaskSet tasks_;
};

struct Measured {
  std::vector<double> perCpu, perSecond;
  Cpu total;
};

int run(const std::string& cluster, const std::string& pid, int rounds) {
  Result<shm::Paths> paths = shm::Paths::of("", cluster);
  if (!paths) return std::fprintf(stderr, "master_ops: %s\n", paths.error().message().c_str()), 69;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  constexpr uint64_t kFew = 16'384;
  Load loads[] = {{io, paths->masterSocket(), {"new", 1024 * kGiB, 0}},
                  {io, paths->masterSocket(), {"over", 64 * kGiB, kFew}},
                  {io, paths->masterSocket(), {"full", kGiB / 4, 0}}};
  Measured measured[std::size(loads)];
  for (Load& load : loads) load.put(kRoundKeys);  // warm: "over" has all its keys, "full" has no space left
  for (int r = 0; r < rounds; ++r) {
    for (size_t i = 0; i < std::size(loads); ++i) {
      for (Load& load : loads) load.beat();
      const Cpu before = cpuOf(pid);
      const int64_t begun = nowNs();
      loads[i].put(kRoundKeys);
      const double seconds = static_cast<double>(nowNs() - begun) * 1e-9;
      const Cpu after = cpuOf(pid);
      measured[i].perCpu.push_back(kRoundKeys / (after.ran - before.ran));
      measured[i].perSecond.push_back(kRoundKeys / seconds);
      measured[i].total.ran += after.ran - before.ran;
      measured[i].total.ticks += after.ticks - before.ticks;
    }
    std::printf("round %d  keys per CPU second: new %.0f   over %.0f   full %.0f\n", r, measured[0].perCpu.back(),
                measured[1].perCpu.back(), measured[2].perCpu.back());
    std::fflush(stdout);
  }
  for (size_t i = 0; i < std::size(loads); ++i) {
    std::printf(
        "%-5s %.0f keys per CPU second (%.0f by clock ticks of all rounds), %.0f keys per second of wall clock, %llu orders, %llu evicted, "
        "%llu not published\n",
        loads[i].name(), median(measured[i].perCpu), static_cast<double>(rounds) * kRoundKeys / measured[i].total.ticks,
        median(measured[i].perSecond), static_cast<unsigned long long>(loads[i].orders), static_cast<unsigned long long>(loads[i].evicted),
        static_cast<unsigned long long>(loads[i].refused));
  }
  const double worst = std::min(median(measured[0].perCpu), median(measured[1].perCpu));
  print({"master-ops", worst, "keys/s", worst / kTarget,
         "200000 keys per CPU second of the master; the worse of new keys and overwritten keys", ">= 200 k keys/s on one core",
         worst >= kTarget});
  return 0;
}

}  // namespace
}  // namespace fluxon::bench

int main(int argc, char** argv) {
  using fluxon::bench::argument;
  return fluxon::bench::oneSentence("master_ops", [&] {
    return fluxon::bench::run(argument(argc, argv, "--cluster", "default"), argument(argc, argv, "--pid", "self"),
                              std::atoi(argument(argc, argv, "--rounds", std::to_string(fluxon::bench::kRounds)).c_str()));
  });
}
