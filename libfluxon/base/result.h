// Results of calls. Outcomes and errors share one table (fluxon/errors.def); a bug is neither: see check.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace fluxon {

enum class Code : uint16_t {
#define FLUXON_RESULT(name, cname, value, kind, retry, sysexit, sentence) name = value,
#include <fluxon/errors.def>
#undef FLUXON_RESULT
};

// Sentence of the table, "unknown result" for a value that is not in it.
const char* sentence(Code);
// Name of the table ("noSpace"), "unknown" for a value that is not in it.
const char* codeName(Code);
// Exit status of a command line tool that ends with this result.
int sysexit(Code);
// True for kind `outcome`.
bool isOutcome(Code);
// A foreign number as a code: values outside the table become Code::protocol.
Code codeFromWire(uint32_t value);

struct Error {
  Code code = Code::ok;
  std::string detail;  // for people; empty: the sentence of the table says it all

  bool ok() const { return code == Code::ok; }
  // "no space: total 64 MiB, ..."
  std::string message() const { return detail.empty() ? sentence(code) : std::string(sentence(code)) + ": " + detail; }
};

// errno as an error: "open /dev/shm/x: Permission denied". EACCES and EPERM become `denied`.
Error systemError(const std::string& what, int errnoValue);

// " (RLIMIT_NOFILE is 14: ulimit -n, or LimitNOFILE= of the unit)": the limit of this process that the system may have meant by an errno;
// empty: none. systemError() says it by itself.
std::string limitBehind(int errnoValue);

// A value or an error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  Result(Code code, std::string detail) : state_(std::in_place_index<1>, Error{code, std::move(detail)}) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  T& operator*() & { return std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace fluxon
