// What a put does about a value or another put of its key, and which owner may have its value. Clients, owners and the master mean the
// same by it; each format that carries it says how (shm/client_format.h, schema/master.capnp).
#pragma once

#include <cstdint>

namespace fluxon {

struct PutMode {
  enum class OnExisting : uint8_t { replace, reject };  // the key has a readable value
  enum class OnInFlight : uint8_t { proceed, reject };  // another put of the key has begun and not ended
  enum class Home : uint8_t { any, here };              // here: another owner has chosen this one

  OnExisting onExisting = OnExisting::replace;
  OnInFlight onInFlight = OnInFlight::proceed;
  Home home = Home::any;

  bool operator==(const PutMode&) const = default;
  // It may be refused for what else there is of its key.
  bool rejects() const { return onExisting == OnExisting::reject || onInFlight == OnInFlight::reject; }
};

}  // namespace fluxon
