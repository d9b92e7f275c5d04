// Layout of `segment`: one header page, then the values. Extents count from the first byte after the header page, so
// an extent at a 4 KiB offset is 4 KiB aligned in the file and in every mapping. Page: fluxon-segment(5).
#pragma once

#include "shm/file_header.h"

namespace fluxon::shm {

constexpr char kSegmentMagic[9] = "FLXSEGM1";
constexpr uint64_t kSegmentDataOffset = 4096;

struct SegmentHeader {
  FileHeader file;
  uint64_t dataBytes;   // capacity for values
  Word populatedBytes;  // pages touched so far, from the start; progress of the background populating
};
static_assert(sizeof(SegmentHeader) == 80 && sizeof(SegmentHeader) <= kSegmentDataOffset);

}  // namespace fluxon::shm
