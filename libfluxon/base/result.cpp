#include "base/result.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace fluxon {

const char* sentence(Code code) {
  switch (code) {
#define FLUXON_RESULT(name, cname, value, kind, retry, sysexit, text) \
  case Code::name:                                                    \
    return text;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return "unknown result";
}

const char* codeName(Code code) {
  switch (code) {
#define FLUXON_RESULT(name, cname, value, kind, retry, sysexit, text) \
  case Code::name:                                                    \
    return #name;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return "unknown";
}

int sysexit(Code code) {
  switch (code) {
#define FLUXON_RESULT(name, cname, value, kind, retry, status, text) \
  case Code::name:                                                   \
    return status;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return 70;
}

bool isOutcome(Code code) { return static_cast<uint16_t>(code) < 16; }

Code codeFromWire(uint32_t value) {
  switch (value) {
#define FLUXON_RESULT(name, cname, number, kind, retry, status, text) \
  case number:                                                        \
    return Code::name;
#include <fluxon/errors.def>
#undef FLUXON_RESULT
  }
  return Code::protocol;
}

std::string limitBehind(int errnoValue) {
  const auto limit = [](int resource, const char* name, const char* unit, const char* option, const char* setting) -> std::string {
    rlimit most{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &most) != 0 || most.rlim_cur == RLIM_INFINITY) return "";
    return std::string(" (") + name + " is " + std::to_string(most.rlim_cur) + unit + ": ulimit " + option + ", or " + setting +
           "= of the unit)";
  };
  switch (errnoValue) {
    case EFBIG: return limit(RLIMIT_FSIZE, "RLIMIT_FSIZE", " bytes", "-f", "LimitFSIZE");
    case EMFILE: return limit(RLIMIT_NOFILE, "RLIMIT_NOFILE", "", "-n", "LimitNOFILE");
    case ENOMEM: return limit(RLIMIT_AS, "RLIMIT_AS", " bytes", "-v", "LimitAS");
    default: return "";
  }
}

Error systemError(const std::string& what, int errnoValue) {
  const Code code = errnoValue == EACCES || errnoValue == EPERM ? Code::denied : Code::system;
  return Error{code, what + ": " + std::strerror(errnoValue) + limitBehind(errnoValue)};
}

}  // namespace fluxon
