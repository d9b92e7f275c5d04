// Block devices over files, and a file system on one. Mounts and devices go when the process ends, however it ends: mounts are made in a
// mount namespace of the process's own, and devices let go of their files when nobody holds them.
#pragma once

#include <cstdint>
#include <string>

namespace fluxon::ssd {

// A folder in $TMPDIR, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string path;
};

// Empty, or why this process cannot have loop devices.
std::string whyNoLoopDevices();
// A file system of that kind (ext4, ext3, xfs, btrfs) and size, mounted at `folder`/mounted. Empty, or what failed.
std::string mountFileSystem(const std::string& folder, uint64_t bytes, const std::string& kind = "ext4");
// No write on the file system of a folder ends while this lives.
class Freezer {
 public:
  explicit Freezer(const std::string& folder);
  ~Freezer() { thaw(); }
  Freezer(const Freezer&) = delete;
  void thaw();

 private:
  int fd_;
};
// Descriptor of a block device over the file, opened with O_DIRECT; -1 if there is none to be had.
int loopDevice(const std::string& file);

}  // namespace fluxon::ssd
