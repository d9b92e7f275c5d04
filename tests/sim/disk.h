// A disk with files, as the kernel shows it and as it is after a crash. What is written is cached until it is synced; a crash keeps,
// loses or tears what is not, sector by sector, and folders forget what they were not synced for. On request operations fail: with
// EIO, with ENOSPC after a part of the bytes, with fewer bytes than asked for.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "scheduler.h"
#include "state_file.h"

namespace fluxon::sim {

class Disk final : public master::StateDisk {
 public:
  explicit Disk(Scheduler& scheduler) : scheduler_(scheduler) {}

  // One operation in `n` fails; 0: none does.
  void failOneIn(uint64_t n) { failing_ = n; }
  // All operations after the next `n` do nothing and fail: the process dies among them.
  void dieAfter(uint64_t n) { left_ = n; }
  // Everything stands still: what is left is what reached the disk.
  void crash();

  // master::StateDisk
  Result<std::string> read(const std::string& path) override;
  Error write(const std::string& path, const std::string& bytes) override;
  Error sync(const std::string& path) override;
  Error rename(const std::string& from, const std::string& to) override;
  Error syncFolder(const std::string& path) override;

  struct Counters {
    uint64_t failed = 0, shortened = 0, torn = 0, lost = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  static constexpr size_t kSector = 512;
  struct Inode {
    std::string cached, durable;
    std::set<size_t> dirty;  // sectors that differ
  };
  using Folder = std::map<std::string, std::shared_ptr<Inode>>;
  // Error: the operation fails without an effect.
  Error operation(const char* what, const std::string& path);
  void put(Inode&, const std::string& bytes);

  Scheduler& scheduler_;
  Folder cached_, durable_;
  uint64_t failing_ = 0;
  uint64_t left_ = UINT64_MAX;
  Counters counters_;
};

}  // namespace fluxon::sim
