// Owned: what one part of the master keeps in the record of a member. Anyone reads it, Part alone changes it: others do not compile.
#pragma once

#include <utility>

namespace fluxon::master {

template <class Part, class T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T value) : value_(std::move(value)) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  operator const T&() const { return value_; }  // NOLINT: it reads like a T
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  friend Part;
  T& own() { return value_; }
  void operator=(T value) { value_ = std::move(value); }

  T value_{};
};

}  // namespace fluxon::master
