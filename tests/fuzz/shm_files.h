// Files of a node in plain memory.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "shm/directory_writer.h"
#include "shm/segment_format.h"

namespace fluxon::fuzz {

// Zeroed memory that starts at a page; not a byte more than asked for.
struct Pages {
  explicit Pages(size_t bytes) : size(bytes) {
    void* memory = nullptr;
    FLUXON_CHECK(::posix_memalign(&memory, 4096, bytes) == 0, "no memory");
    data = static_cast<char*>(memory);
    std::memset(data, 0, bytes);
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  size_t size;
  char* data;
};

struct NodeFiles {
  NodeFiles(const shm::DirectoryWriter::Shape& of)
      : shape(of),
        directory(shm::directoryFileBytes(of.buckets, of.overflowSlots)),
        keys(shm::keysFileBytes(of.keysBytes)),
        segment(shm::kSegmentDataOffset + of.segmentBytes),
        writer(shm::DirectoryWriter::layout(directory.data, keys.data, of, Incarnation(9), "cluster", "node"), of) {
    auto* header = reinterpret_cast<shm::SegmentHeader*>(segment.data);
    std::memcpy(header->file.magic, shm::kSegmentMagic, 8);
    header->file.version = shm::kFormatVersion;
    header->file.headerBytes = sizeof(shm::SegmentHeader);
    header->file.fileBytes = segment.size;
    header->file.incarnation = 9;
    header->dataBytes = of.segmentBytes;
    writer.setServing(Incarnation(5));
    writer.setLease(INT64_MAX);
  }
  // A committed value.
  uint32_t put(const std::string& key, uint64_t id, uint64_t offset, const std::string& value) {
    const uint32_t slot = grant(key, offset, value.size());
    std::memcpy(segment.data + shm::kSegmentDataOffset + offset, value.data(), value.size());
    writer.submit(slot);
    writer.commit(slot, PutId(id));
    return slot;
  }
  uint32_t grant(const std::string& key, uint64_t offset, uint64_t bytes) {
    return writer.grant(key, keyHash(key), offset, bytes, 1, OperationId(1)).value();
  }

  shm::DirectoryWriter::Shape shape;
  Pages directory, keys, segment;
  shm::DirectoryWriter writer;
};

}  // namespace fluxon::fuzz
