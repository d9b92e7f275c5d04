// A log of up --detach. Processes append to it through its descriptor, so it can be cut beneath them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "shm/mapped_file.h"

namespace fluxon::ctl {

constexpr uint64_t kLogLimit = uint64_t{16} << 20;  // of each: with the older half, twice that

class LogFile {
 public:
  static Result<LogFile> open(const std::string& path);
  int fd() const { return fd_.get(); }
  uint64_t bytes() const;
  // The last line of what came after the first `from` bytes; empty if nothing did.
  std::string lastLine(uint64_t from) const;
  // The text of the last warning or error of a daemon among the last lines of that; empty if there is none.
  std::string lastWarning(uint64_t from) const;
  // A log longer than `limit` becomes PATH.1, in place of an earlier one, and is empty. What is written to it in between is lost.
  Error trim(uint64_t limit) const;

 private:
  // As much of the end as some lines have.
  std::string tail(uint64_t from) const;

  std::string path_;
  shm::Descriptor fd_;
};

// Makes a folder, and those above it that are missing: 0700, whatever the umask is.
Error makeFolders(const std::string& path);

}  // namespace fluxon::ctl
