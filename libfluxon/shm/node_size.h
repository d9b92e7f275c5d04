// What the files of a node take of their file system: for its owner's start, and for who asks before it whether that will do.
#pragma once

#include <cstdint>

#include "base/extent.h"
#include "base/size.h"
#include "shm/client_format.h"
#include "shm/directory_writer.h"
#include "shm/segment_format.h"

namespace fluxon::shm {

// Of a client's file, which is reserved when the client attaches.
constexpr uint64_t kBytesPerClient = sizeof(ClientFile);
// Folder, lock, segment, directory, keys, socket and ssdd of a node; a client has one.
constexpr uint64_t kFilesPerNode = 7;

// Segment, directory and keys, which are reserved at start.
inline uint64_t bytesPerNode(uint64_t segmentBytes, uint64_t maxKeys) {
  const uint64_t data = alignUp(segmentBytes, kLargeStep);
  const DirectoryWriter::Shape shape = DirectoryWriter::shapeFor(maxKeys, data);
  return kSegmentDataOffset + data + directoryFileBytes(shape.buckets, shape.overflowSlots) + keysFileBytes(shape.keysBytes);
}

}  // namespace fluxon::shm
