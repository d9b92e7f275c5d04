// The file between an owner and its ssdd as both ends read it, while anybody writes whatever they like wherever they like. What is
// received is the frame that is there, and of a kind that the other end sends; as long as nobody has meddled, it is what was sent.
#include <algorithm>
#include <deque>

#include "fuzz.h"
#include "shm_files.h"
#include "ssd/channel.h"

namespace fluxon::fuzz {
namespace {

using namespace ssd;
using Received = Channel::Received;

enum class Act : uint8_t { write, forge, send, receive, awake, sleep, acts };

constexpr int kNoBell = -1;

bool same(const Message& a, const Message& b) {
  return a.kind == b.kind && a.id == b.id && a.key == b.key && a.putId == b.putId && a.offset == b.offset && a.bytes == b.bytes &&
         a.code == b.code;
}

// What has been written is made zero again after each input.
class Both {
 public:
  ~Both() {
    for (const auto& [at, bytes] : written_) std::memset(reinterpret_cast<char*>(&file()) + at, 0, bytes);
    for (End& end : ends_) std::memset(static_cast<void*>(&end.out), 0, offsetof(ByteRing, bytes) + std::min(end.sentBytes, kRingBytes));
  }
  static SsddFile& file() {
    static Pages& pages = *new Pages(sizeof(SsddFile));
    return *reinterpret_cast<SsddFile*>(pages.data);
  }

  // Any byte of the file.
  void write(size_t at, std::string_view bytes) {
    at %= sizeof(SsddFile);
    bytes = bytes.substr(0, sizeof(SsddFile) - at);
    std::memcpy(reinterpret_cast<char*>(&file()) + at, bytes.data(), bytes.size());
    written_.emplace_back(at, bytes.size());
    honest_ = false;
  }
  // A frame where the writer of a ring would put the next one.
  void forge(size_t which, std::string_view bytes) {
    ByteRing& ring = ends_[which].out;
    const uint64_t tail = ring.tail.load();
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t at = (tail + i) % kRingBytes;
      ring.bytes[at] = bytes[i];
      written_.emplace_back(reinterpret_cast<char*>(&ring.bytes[at]) - reinterpret_cast<char*>(&file()), 1);
    }
    ring.tail.store(tail + (bytes.size() + 7) / 8 * 8);
    written_.emplace_back(reinterpret_cast<char*>(&ring.tail) - reinterpret_cast<char*>(&file()), sizeof ring.tail);
    honest_ = false;
  }

  void send(size_t which, Input& in) {
    End& end = ends_[which];
    const uint16_t first = which == 0 ? 1 : 32, kinds = 8;
    Message message;
    message.kind = static_cast<MessageKind>(first + in.take<uint8_t>() % kinds);
    message.key = std::string(in.take<uint16_t>() % (kMaxKeyBytes + 1), 'k');
    message.id = in.take<uint64_t>();
    message.putId = PutId(in.take<uint64_t>());
    message.bytes = in.take<uint8_t>();
    end.channel.send(message);
    end.sentBytes += sizeof(Frame) + message.key.size() + 8;
    if (end.channel.broken())
      FLUXON_CHECK(end.channel.waiting() == 0, "a broken channel keeps messages");
    else
      end.sent.push_back(std::move(message));
  }

  bool receive(size_t which) {
    End& end = ends_[which];
    End& other = ends_[1 - which];
    const std::string before = frameAt(other.out, end.read);
    const bool broken = end.channel.broken();
    const uint64_t left = other.out.tail.load() - end.read;
    Message message;
    const Received received = end.channel.receive(message);
    FLUXON_CHECK(!broken || received == Received::broken, "a broken channel says something");
    FLUXON_CHECK((received == Received::broken) == end.channel.broken() && end.channel.broken() != end.channel.why().empty(), "broken");
    if (honest_) {
      FLUXON_CHECK(received == (other.sent.size() > other.channel.waiting() ? Received::message : Received::nothing), "what was sent");
    }
    if (received != Received::message) return false;
    Frame frame;
    std::memcpy(&frame, before.data(), sizeof frame);
    const bool ofOwner = frame.kind >= 1 && frame.kind <= 8, ofSsdd = frame.kind >= 32 && frame.kind <= 39;
    FLUXON_CHECK(which == 0 ? ofSsdd : ofOwner, "a message of a kind that nobody sends");
    FLUXON_CHECK(message.key.size() <= kMaxKeyBytes && message.key.size() == frame.keyBytes, "length of a key");
    FLUXON_CHECK(message.key == std::string_view(before).substr(sizeof frame, frame.keyBytes), "another key");
    FLUXON_CHECK(static_cast<uint16_t>(message.kind) == frame.kind && message.id == frame.id && message.putId.value == frame.putId &&
                     message.offset == frame.offset && message.bytes == frame.bytes && message.code == codeFromWire(frame.code),
                 "another message");
    const uint64_t bytes = (sizeof frame + frame.keyBytes + 7) / 8 * 8;
    FLUXON_CHECK(bytes <= left && left <= kRingBytes, "a frame that is not all there");
    end.read += bytes;
    if (honest_) {
      FLUXON_CHECK(same(message, other.sent.front()), "not what was sent");
      other.sent.pop_front();
    }
    return true;
  }

  void awake(size_t which) { ends_[which].channel.awake(); }
  void sleep(size_t which) {
    End& end = ends_[which];
    const bool left = ends_[1 - which].out.tail.load() != end.read;
    FLUXON_CHECK(end.channel.sleep() == (end.channel.broken() || !left), "it sleeps over a message, or is kept awake by none");
  }

 private:
  struct End {
    Channel channel;
    ByteRing& out;
    std::deque<Message> sent;
    uint64_t sentBytes = 0, read = 0;
  };
  // The frame at a position with the longest key that it may have.
  static std::string frameAt(const ByteRing& ring, uint64_t at) {
    std::string bytes(sizeof(Frame) + kMaxKeyBytes, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ring.bytes[(at + i) % kRingBytes];
    return bytes;
  }

  bool honest_ = true;
  std::vector<std::pair<size_t, size_t>> written_;
  End ends_[2] = {{Channel(file(), Channel::End::owner, kNoBell), file().toSsdd, {}},
                  {Channel(file(), Channel::End::ssdd, kNoBell), file().toOwner, {}}};
};

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  Both both;
  bool any = false;
  while (!in.empty()) {
    const auto what = in.take<uint8_t>();
    const size_t which = what >> 7;
    switch (static_cast<Act>((what & 0x7f) % static_cast<uint8_t>(Act::acts))) {
      case Act::write: {
        const size_t at = in.take<uint32_t>();
        both.write(at, in.take(in.take<uint8_t>()));
        break;
      }
      case Act::forge: both.forge(which, in.take(in.take<uint8_t>())); break;
      case Act::send: both.send(which, in); break;
      case Act::receive: any |= both.receive(which); break;
      case Act::awake: both.awake(which); break;
      default: both.sleep(which);
    }
  }
  return any;
}

std::vector<std::string> seeds() {
  const auto act = [](size_t which, Act what, std::string_view more = {}) {
    return std::string(1, static_cast<char>(which << 7 | static_cast<size_t>(what))).append(more);
  };
  const auto send = [&](size_t which, uint8_t kind, uint16_t keyBytes) {
    return act(which, Act::send, std::string(1, static_cast<char>(kind)).append(bytesOf(keyBytes)).append(std::string(17, '\7')));
  };
  const auto forge = [&](size_t which, MessageKind kind, const std::string& key) {
    const Frame frame{static_cast<uint16_t>(kind), 0, static_cast<uint32_t>(key.size()), 1, 2, 3, 4};
    return act(which, Act::forge, std::string(1, static_cast<char>(sizeof frame + key.size())).append(bytesOf(frame)) + key);
  };
  const auto write = [&](size_t offset, uint64_t value) {
    return act(0, Act::write, std::string(bytesOf(static_cast<uint32_t>(offset))) + "\x08").append(bytesOf(value));
  };
  const std::string owner = act(0, Act::receive), ssdd = act(1, Act::receive);
  std::string full;
  for (int i = 0; i < 300; ++i) full += send(0, 0, 4096);
  return {send(0, 0, 3) + send(0, 2, 0) + ssdd + ssdd + act(1, Act::sleep) + send(1, 5, 0) + owner,
          forge(1, MessageKind::listed, "key") + owner + forge(0, MessageKind::load, "") + ssdd + ssdd,
          forge(1, MessageKind::persisted, "") + owner + forge(1, MessageKind::persist, "") + owner + send(0, 0, 3),
          send(0, 0, 3) + ssdd + write(offsetof(SsddFile, toSsdd) + offsetof(ByteRing, tail), UINT64_MAX) + ssdd,
          send(0, 0, 3) + ssdd + write(offsetof(SsddFile, toSsdd) + offsetof(ByteRing, head), 1 << 30) + send(0, 0, 3),
          full + ssdd + act(0, Act::sleep) + ssdd + act(0, Act::awake) + ssdd};
}

}  // namespace fluxon::fuzz
