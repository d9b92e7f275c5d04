// SlotIndex: finds the place of a record in its pool (its slot) by a 64-bit key that the record holds itself. Open addressing with linear
// probing, at most 3/4 full, no tombstones: 11 to 21 bytes a record. A place repeats 32 bits of the key's hash, so that a look-up reads no
// record but the one that it finds. A pool has at most 2^32 - 1 records. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fluxon::master {

class SlotIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  size_t size() const { return count_; }

  // The slot whose record has this key, or kNone. `keyOf(slot)` reads the key of a record.
  template <class KeyOf>
  uint32_t find(uint64_t key, KeyOf keyOf) const {
    if (places_.empty()) return kNone;
    const size_t mask = places_.size() - 1;
    const uint32_t hash = hashOf(key);
    for (size_t at = hash & mask; places_[at].slot != kNone; at = (at + 1) & mask) {
      if (places_[at].hash == hash && keyOf(places_[at].slot) == key) return places_[at].slot;
    }
    return kNone;
  }

  // The key must not be here.
  void add(uint64_t key, uint32_t slot) {
    if ((count_ + 1) * 4 > places_.size() * 3) grow();
    put({slot, hashOf(key)});
    ++count_;
  }

  // The slot must have been added under this key. Later members of the probe chain move up, unless their home lies past the hole.
  void erase(uint64_t key, uint32_t slot) {
    const size_t mask = places_.size() - 1;
    size_t hole = hashOf(key) & mask;
    while (places_[hole].slot != slot) hole = (hole + 1) & mask;
    for (size_t at = (hole + 1) & mask; places_[at].slot != kNone; at = (at + 1) & mask) {
      if (((at - places_[at].hash) & mask) < ((at - hole) & mask)) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole] = Place{};
    --count_;
  }

 private:
  struct Place {
    uint32_t slot = kNone;
    uint32_t hash = 0;
  };

  // Multiplicative, the high half: keys may be consecutive, or share their low bits.
  static uint32_t hashOf(uint64_t key) { return static_cast<uint32_t>(((key ^ (key >> 32)) * 0x9E3779B97F4A7C15ull) >> 32); }

  void put(Place place) {
    const size_t mask = places_.size() - 1;
    size_t at = place.hash & mask;
    while (places_[at].slot != kNone) at = (at + 1) & mask;
    places_[at] = place;
  }

  void grow() {
    std::vector<Place> old(std::max<size_t>(16, places_.size() * 2));
    old.swap(places_);
    for (const Place& place : old) {
      if (place.slot != kNone) put(place);
    }
  }

  std::vector<Place> places_;
  size_t count_ = 0;
};

}  // namespace fluxon::master
