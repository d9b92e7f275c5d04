// What a target of the data link sends: how it is cut changes nothing, and what was taken is what stood there.
#include <algorithm>

#include "fuzz.h"
#include "link_frames.h"

namespace fluxon::fuzz {
namespace {

using link::tcp::ReadRequest;
using Outcome = link::tcp::RequestParser::Outcome;

struct Parsed {
  std::vector<ReadRequest> requests;
  bool broken = false;
  size_t left = 0;
};

// Hands `bytes` over as a connection would, `step` more at a time.
Parsed parse(std::string_view bytes, size_t step) {
  link::tcp::RequestParser parser;
  Parsed parsed;
  std::string buffer;
  for (size_t at = 0; at < bytes.size() && !parsed.broken; at += step) {
    // Exactly as long as what is in it, so that a byte beyond is a finding.
    std::vector<char> exact(buffer.begin(), buffer.end());
    exact.insert(exact.end(), bytes.begin() + static_cast<ptrdiff_t>(at),
                 bytes.begin() + static_cast<ptrdiff_t>(std::min(at + step, bytes.size())));
    exact.shrink_to_fit();
    std::string_view rest(exact.data(), exact.size());
    ReadRequest request;
    Outcome outcome;
    while ((outcome = parser.next(rest, request)) == Outcome::request) parsed.requests.push_back(request);
    parsed.broken = outcome == Outcome::broken;
    FLUXON_CHECK(parsed.broken || rest.size() < link::tcp::kMaxRecordBytes, "more is wanted although a record is whole");
    buffer = rest;
  }
  parsed.left = buffer.size();
  return parsed;
}

bool same(const ReadRequest& a, const ReadRequest& b) {
  return std::memcmp(&a.record, &b.record, sizeof a.record) == 0 && a.key == b.key && a.sane == b.sane;
}

// The requests, written again, are the bytes that they came from but for what pads the keys.
size_t compare(std::string_view bytes, const std::vector<ReadRequest>& requests) {
  size_t at = 0, inFrame = 0, end = 0;
  for (const ReadRequest& request : requests) {
    if (inFrame == 0) {
      link::tcp::FrameHeader header;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      FLUXON_CHECK(std::memcmp(header.magic, link::tcp::kFrameMagic, 4) == 0 && header.kind == link::tcp::kReadKind, "no frame");
      FLUXON_CHECK(header.count > 0 && header.count <= link::tcp::kMaxFrameRecords, "count of a frame");
      inFrame = header.count;
      at += sizeof header;
      end = at + header.bytes;
    }
    FLUXON_CHECK(bytes.substr(at, sizeof request.record) == bytesOf(request.record), "a record differs from its bytes");
    at += sizeof request.record;
    FLUXON_CHECK(request.record.keyBytes == request.key.size() && request.key.size() <= kMaxKeyBytes, "length of a key");
    FLUXON_CHECK(bytes.substr(at, request.key.size()) == request.key, "a key differs from its bytes");
    at += link::tcp::paddedKeyBytes(request.key.size());
    FLUXON_CHECK(at <= end && (--inFrame > 0 || at == end), "records that do not fill their frame");
    const unsigned __int128 last = static_cast<unsigned __int128>(request.record.offset) + request.record.length;
    FLUXON_CHECK(request.sane == (last <= request.record.valueBytes && request.record.length <= link::tcp::kMaxPieceBytes), "sane");
  }
  return at;
}

}  // namespace

bool run(std::string_view input) {
  Input in(input);
  const size_t step = 1 + in.take<uint8_t>();
  const std::string_view bytes = in.rest();
  const Parsed whole = parse(bytes, std::max<size_t>(bytes.size(), 1)), pieces = parse(bytes, step);
  FLUXON_CHECK(whole.broken == pieces.broken && (whole.broken || whole.left == pieces.left), "how the bytes are cut changes the outcome");
  FLUXON_CHECK(std::equal(whole.requests.begin(), whole.requests.end(), pieces.requests.begin(), pieces.requests.end(), same),
               "how the bytes are cut changes the requests");
  const size_t taken = compare(bytes, whole.requests);
  FLUXON_CHECK(taken + whole.left <= bytes.size(), "more was taken than there is");
  return !whole.broken && !whole.requests.empty() && whole.left == 0;
}

std::vector<std::string> seeds() {
  const std::string step(1, '\x3f');
  return {step + frameOf({requestOf(1, "key", 2, 3, 1000, 100, 200)}),
          step + frameOf({requestOf(1, "a", 2, 3, 10, 0, 10), requestOf(2, "", 0, 0, 64, 0, 64, 9),
                          requestOf(3, std::string(200, 'k'), 2, 3, 10, 10, 0)}),
          step + frameOf({requestOf(1, "eightbyt", 2, 3, 10, 0, 10)}) + frameOf({requestOf(2, "nine byte", 2, 3, 10, 0, 11)})};
}

}  // namespace fluxon::fuzz
