// Addresses and sizes, as people and peers write them. What is accepted is written again as the same.
#include "base/endpoint.h"
#include "base/size.h"
#include "fuzz.h"

namespace fluxon::fuzz {
namespace {

bool address(const std::string& text) {
  const Result<Endpoint> endpoint = parseEndpoint(text);
  if (!endpoint) return false;
  const Result<Endpoint> again = parseEndpoint(toString(endpoint.value()));
  FLUXON_CHECK(again && toString(again.value()) == toString(endpoint.value()), "an address that is written as something else");
  if (!endpoint.value().enabled) return true;
  FLUXON_CHECK(!bareHost(endpoint.value()).empty(), "an address without a host");
  FLUXON_CHECK(!isLoopback(endpoint.value()) || !isAnyAddress(endpoint.value()), "an address of this host alone and of everybody");
  return true;
}

bool size(std::string_view text) {
  const Result<uint64_t> bytes = parseSize(text, 1);
  if (!bytes) return false;
  FLUXON_CHECK(bytes.value() >= 1 && bytes.value() < kLargestSize, "a size that makes no sense");
  FLUXON_CHECK(parseSize(std::to_string(bytes.value()), 1).value() == bytes.value(), "a size that is read as another one");
  const Result<uint64_t> shown = parseSize(formatSize(bytes.value()), 0);
  FLUXON_CHECK(shown && shown.value() <= bytes.value() + bytes.value() / 8, "a size that is shown as another one");
  return true;
}

}  // namespace

bool run(std::string_view input) {
  const bool isAddress = address(std::string(input)), isSize = size(input);
  return isAddress || isSize;
}

std::vector<std::string> seeds() {
  return {"off",   "127.0.0.1:0", "[::1]:80", "[fe80::1%eth0]:9", "*:7800", "host.name:65535",
          "64MiB", "1.5 GB",      "512.9b",   "9007199254740991"};
}

}  // namespace fluxon::fuzz
