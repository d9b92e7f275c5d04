// Structs of the C interface that grow at their end from release to release. The program says how many bytes of one it knows (`size`, the
// first member); these functions make what a program of any release gives or takes into what this library knows, and back.
//
//   the program knows less: options that it does not have are 0, results that it does not have are left out
//   the program knows more: options beyond must be 0, or it asks for what is not there; results beyond are set to 0
// A size below that of the first release, or above kMostBytes, is none: the struct was not initialized.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/result.h"

namespace fluxon::client {

constexpr size_t kMostBytes = 4096;  // of a struct of any release

// A program of this release needs no further check.
template <class T>
bool sameRelease(const T* sized) {
  return !sized || sized->size == sizeof(T);
}

template <class T>
Error checkSize(const T* sized, size_t first, const char* name) {
  if (sized->size >= first && sized->size <= kMostBytes) return {};
  return {Code::invalidArgument,
          std::string(name) + ".size is " + std::to_string(sized->size) + ": set it to sizeof(" + name + "), as FLUXON_INIT does"};
}

// `from` may be null: defaults. `first`: sizeof(T) in the first release.
template <class T>
Error readSized(const T* from, size_t first, const char* name, T& to) {
  static_assert(std::has_unique_object_representations_v<T>, "padding would be read as members of a later release");
  to = T{};
  if (!from) return {};
  if (Error error = checkSize(from, first, name); !error.ok()) return error;
  const auto* const bytes = reinterpret_cast<const char*>(from);
  if (from->size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + from->size, [](char byte) { return byte != 0; })) {
    return {Code::invalidArgument, std::string(name) + " has a member set that this libfluxon does not know: it knows " +
                                       std::to_string(sizeof(T)) + " bytes of " + std::to_string(from->size)};
  }
  std::memcpy(&to, from, std::min(from->size, sizeof(T)));
  return {};
}

// The size of `to` has been checked.
template <class T>
void writeSized(const T& from, T* to) {
  static_assert(std::has_unique_object_representations_v<T>);
  const size_t size = to->size;
  std::memcpy(to, &from, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(to) + sizeof(T), 0, size - sizeof(T));
  to->size = size;
}

}  // namespace fluxon::client
