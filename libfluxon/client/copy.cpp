#include "client/copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace fluxon::client {
namespace {

constexpr size_t kStreaming = 256 * 1024;  // from here on, past the caches

}  // namespace

void copyValue(char* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  if (bytes >= kStreaming) {
    const auto* source = static_cast<const char*>(from);
    const size_t head = (64 - (reinterpret_cast<uintptr_t>(to) & 63)) & 63;
    std::memcpy(to, source, head);
    size_t at = head;
    for (; at + 64 <= bytes; at += 64) {
      _mm_prefetch(source + at + 1024, _MM_HINT_NTA);
      const auto* lines = reinterpret_cast<const __m128i*>(source + at);
      const __m128i a = _mm_loadu_si128(lines), b = _mm_loadu_si128(lines + 1), c = _mm_loadu_si128(lines + 2),
                    d = _mm_loadu_si128(lines + 3);
      auto* const out = reinterpret_cast<__m128i*>(to + at);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();  // streamed stores are ordered before the commit that publishes them
    std::memcpy(to + at, source + at, bytes - at);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace fluxon::client
