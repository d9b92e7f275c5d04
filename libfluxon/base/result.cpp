#include "base/result.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace fluxon {

const char* sentence(Code code) {
  switch (code) {
#define FLUXON_RESULT(name, cname, value, kind, retry, sysexit, text) \
  case Code::name: return text;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return "unknown result";
}

const char* codeName(Code code) {
  switch (code) {
#define FLUXON_RESULT(name, cname, value, kind, retry, sysexit, text) \
  case Code::name: return #name;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return "unknown";
}

int sysexit(Code code) {
  switch (code) {
#define FLUXON_RESULT(name, cname, value, kind, retry, status, text) \
  case Code::name: return status;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return 70;
}

bool isOutcome(Code code) { return static_cast<uint16_t>(code) < 16; }

Code codeFromWire(uint32_t value) {
  switch (value) {
#define FLUXON_RESULT(name, cname, number, kind, retry, status, text) \
  case number: return Code::name;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return Code::protocol;
}

Error systemError(const std::string& what, int errnoValue) {
  const Code code = errnoValue == EACCES || errnoValue == EPERM ? Code::denied : Code::system;
  std::string detail = what + ": " + std::strerror(errnoValue);
  rlimit limit{};
  if (errnoValue == EFBIG && ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    detail += " (RLIMIT_FSIZE is " + std::to_string(limit.rlim_cur) + " bytes: ulimit -f, or LimitFSIZE= of the unit)";
  }
  return Error{code, std::move(detail)};
}

}  // namespace fluxon
