#include "loop_device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace fluxon::ssd {
namespace {

std::string madeFolder() {
  const char* place = std::getenv("TMPDIR");
  std::string name = std::string(place ? place : "/tmp") + "/fluxon-ssd-XXXXXX";
  if (!::mkdtemp(name.data())) std::abort();
  return name;
}

// A free loop device over the file; its path. Another process may take the one that is offered: the next is asked for.
int attach(const std::string& file, int flags, std::string& path) {
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  const int backing = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  int device = -1;
  for (int tries = 0; control >= 0 && backing >= 0 && device < 0 && tries < 16; ++tries) {
    const int number = ::ioctl(control, LOOP_CTL_GET_FREE);
    path = "/dev/loop" + std::to_string(number);
    device = number < 0 ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags);
    if (device < 0) continue;
    loop_config config{};
    config.fd = static_cast<uint32_t>(backing);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device, LOOP_CONFIGURE, &config) == 0) break;
    ::close(device);
    device = -1;
  }
  if (control >= 0) ::close(control);
  if (backing >= 0) ::close(backing);
  return device;
}

}  // namespace

TemporaryFolder::TemporaryFolder() : path(madeFolder()) {}
TemporaryFolder::~TemporaryFolder() {
  ::umount2((path + "/mounted").c_str(), MNT_DETACH);
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string whyNoLoopDevices() {
  if (::geteuid() != 0) return "loop devices take root";
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return std::string("no mount namespace: ") + std::strerror(errno);
  const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return std::string("/dev/loop-control: ") + std::strerror(errno);
  ::close(control);
  return {};
}

std::string mountFileSystem(const std::string& folder, uint64_t bytes, const std::string& kind) {
  const std::string image = folder + "/image", at = folder + "/mounted";
  const int made = ::open(image.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (made < 0 || ::ftruncate(made, static_cast<off_t>(bytes)) != 0) return image + ": " + std::strerror(errno);
  ::close(made);
  const std::string make = kind == "xfs" || kind == "btrfs" ? "mkfs." + kind + " -q -f " : "mkfs." + kind + " -q -F -m 0 ";
  if (std::system((make + image + " >&2").c_str()) != 0) return make + "failed";
  std::string path;
  const int device = attach(image, 0, path);
  if (device < 0) return "no free loop device";
  const bool mounted = ::mkdir(at.c_str(), 0700) == 0 && ::mount(path.c_str(), at.c_str(), kind.c_str(), 0, nullptr) == 0;
  const int error = errno;
  ::close(device);
  return mounted ? std::string() : "mount of " + path + ": " + std::strerror(error);
}

Freezer::Freezer(const std::string& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0 || ::ioctl(fd_, FIFREEZE, 0) != 0) std::abort();
}

void Freezer::thaw() {
  if (fd_ < 0) return;
  if (::ioctl(fd_, FITHAW, 0) != 0) std::abort();
  ::close(std::exchange(fd_, -1));
}

int loopDevice(const std::string& file) {
  std::string path;
  return attach(file, O_DIRECT, path);
}

}  // namespace fluxon::ssd
