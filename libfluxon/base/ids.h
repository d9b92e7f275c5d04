// Strong types for the numbers of the protocol: two integers of one kind never stand side by side in a signature.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace fluxon {

template <class Tag>
struct Id {
  uint64_t value = 0;
  constexpr Id() = default;
  constexpr explicit Id(uint64_t v) : value(v) {}
  auto operator<=>(const Id&) const = default;
  explicit operator bool() const { return value != 0; }
};

// One life of one process: random, never 0.
using Incarnation = Id<struct IncarnationTag>;
// One life of a master, counted from 1.
using Term = Id<struct TermTag>;
// Identity of a request of an owner to its master, counted from 1 within an incarnation of the owner.
using OperationId = Id<struct OperationIdTag>;
// Identity of an order of a master to its owners, counted from 1 within a term.
using OrderId = Id<struct OrderIdTag>;
// What an owner lets peers read although it is no readable value. 0: none.
using ExportId = Id<struct ExportIdTag>;
// A lease on keys (TTL). 0: none.
using KeyLeaseId = Id<struct KeyLeaseIdTag>;
// One client of one owner, counted from 1 within an incarnation of the owner's process.
using ClientId = Id<struct ClientIdTag>;

// Version of a key: term and sequence, strictly increasing for the whole cluster. 0: none.
// 20 bits of term (a million lives of a master), 44 bits of sequence (2.7 years of 200,000 puts a second in one term).
struct PutId {
  static constexpr unsigned kSequenceBits = 44;
  static constexpr uint64_t kMaxSequence = (uint64_t{1} << kSequenceBits) - 1;
  static constexpr uint64_t kMaxTerm = (uint64_t{1} << (64 - kSequenceBits)) - 1;
  uint64_t value = 0;
  constexpr PutId() = default;
  constexpr explicit PutId(uint64_t v) : value(v) {}
  constexpr PutId(Term term, uint64_t sequence) : value(term.value << kSequenceBits | sequence) {}
  uint64_t term() const { return value >> kSequenceBits; }
  uint64_t sequence() const { return value & kMaxSequence; }
  auto operator<=>(const PutId&) const = default;
  explicit operator bool() const { return value != 0; }
};
// "3.17": term, sequence.
inline std::string toString(PutId id) { return std::to_string(id.term()) + "." + std::to_string(id.sequence()); }

// 64 random bits that are not 0.
Incarnation newIncarnation();
// "00f3..": 16 hex digits.
std::string toString(Incarnation);

constexpr size_t kMaxNameBytes = 32;  // of a cluster or a node
// Of a shm root, so that the path of a socket below it, ROOT/CLUSTER/NODE/socket, has room in the 108 bytes of an address.
constexpr size_t maxRootBytes(size_t clusterBytes) { return 108 - (1 + clusterBytes + 1 + kMaxNameBytes + sizeof "/socket"); }
constexpr size_t kMaxKeyBytes = 4096;

// Cluster and node names become path components: 1 to kMaxNameBytes of [A-Za-z0-9_.-], not starting with '.'.
bool validName(const std::string&);

}  // namespace fluxon

template <class Tag>
struct std::hash<fluxon::Id<Tag>> {
  size_t operator()(fluxon::Id<Tag> id) const noexcept { return std::hash<uint64_t>{}(id.value * 0x9E3779B97F4A7C15ull); }
};
template <>
struct std::hash<fluxon::PutId> {
  size_t operator()(fluxon::PutId id) const noexcept { return std::hash<uint64_t>{}(id.value * 0x9E3779B97F4A7C15ull); }
};
