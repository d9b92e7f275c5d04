#include "shm/directory_view.h"

#include "shm/segment_format.h"

namespace fluxon::shm {

Result<DirectoryView> DirectoryView::over(const void* directory, uint64_t directoryBytes, const void* keysFile, uint64_t keysFileBytes,
                                          const void* segmentFile, uint64_t segmentFileBytes) {
  const auto corrupt = [](const char* file, const char* why) { return Error{Code::corrupt, std::string(file) + ": " + why}; };
  const auto* header = static_cast<const DirectoryHeader*>(directory);
  if (const char* why = refuse(header->file, kDirectoryMagic, directoryBytes)) return corrupt("directory", why);
  if (directoryBytes < sizeof(DirectoryHeader)) return corrupt("directory", "shorter than its header");
  const uint32_t buckets = header->buckets, overflow = header->overflowSlots;
  const bool shape = buckets != 0 && (buckets & (buckets - 1)) == 0 && buckets <= (1u << 28) && overflow <= (1u << 28) &&
                     header->tagsOffset == sizeof(DirectoryHeader) && header->slotsOffset == header->tagsOffset + uint64_t{buckets} * 64 &&
                     directoryBytes >= directoryFileBytes(buckets, overflow);
  if (!shape) return corrupt("directory", "table does not fit its file");

  const auto* keysHeader = static_cast<const KeysHeader*>(keysFile);
  if (const char* why = refuse(keysHeader->file, kKeysMagic, keysFileBytes)) return corrupt("keys", why);
  if (header->keysBytes > keysFileBytes - sizeof(KeysHeader)) return corrupt("keys", "shorter than the directory says");

  const auto* segmentHeader = static_cast<const SegmentHeader*>(segmentFile);
  if (const char* why = refuse(segmentHeader->file, kSegmentMagic, segmentFileBytes)) return corrupt("segment", why);
  if (segmentFileBytes < kSegmentDataOffset || header->segmentBytes > segmentFileBytes - kSegmentDataOffset) {
    return corrupt("segment", "shorter than the directory says");
  }
  if (keysHeader->file.incarnation != header->file.incarnation || segmentHeader->file.incarnation != header->file.incarnation) {
    return corrupt("directory", "keys or segment are of another incarnation");
  }

  DirectoryView view;
  view.header = header;
  view.tags = reinterpret_cast<const Word*>(static_cast<const char*>(directory) + header->tagsOffset);
  view.slots = reinterpret_cast<const DirectorySlot*>(static_cast<const char*>(directory) + header->slotsOffset);
  view.buckets = buckets;
  view.slotCount = buckets * kSlotsPerBucket + overflow;
  view.keys = static_cast<const char*>(keysFile) + sizeof(KeysHeader);
  view.keysBytes = header->keysBytes;
  view.segment = static_cast<const char*>(segmentFile) + kSegmentDataOffset;
  view.segmentBytes = header->segmentBytes;
  return view;
}

}  // namespace fluxon::shm
