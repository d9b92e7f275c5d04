// Where the files of a cluster lie:  <root>/<cluster>/<node>/{lock,segment,directory,keys,client-<id>,ssdd,socket}
//                                    <root>/<cluster>/.master/{lock,socket}
// <root> is $FLUXON_SHM_ROOT or /dev/shm/fluxon-<uid>. Folders are made 0700 (0750 with a group), never reached through a symbolic
// link and always owned by this user or root: somebody else's are refused. What is there keeps its mode and group.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/mapped_file.h"

namespace fluxon::shm {

struct Paths {
  std::string root;
  std::string cluster;
  bool isDefaultRoot = false;  // nobody has named it

  // `root` empty: $FLUXON_SHM_ROOT, else /dev/shm/fluxon-<uid>. `invalidArgument` for a bad cluster name or a root so long
  // that a socket path would not fit.
  static Result<Paths> of(const std::string& root, const std::string& cluster);

  std::string clusterDir() const { return root + "/" + cluster; }
  std::string nodeDir(const std::string& node) const { return clusterDir() + "/" + node; }
  std::string file(const std::string& node, const std::string& name) const { return nodeDir(node) + "/" + name; }
  std::string masterDir() const { return clusterDir() + "/.master"; }
  std::string masterSocket() const { return masterDir() + "/socket"; }

  // Names of the nodes that have a folder here, sorted; empty if there is no such cluster.
  std::vector<std::string> nodes() const;
};

// Can a folder be here, or be made here: nothing, or a folder of this user or root. denied: what is in the way and whose it is.
Error checkFolder(const std::string& path);
// gid of common.shm_group; -1 for none, badConfig: there is no such group.
Result<int> groupOf(const std::string& name);
// Makes a folder of the modes above if it is not there; `group` -1: 0700. One that is there is used as it is. denied: it is a link, or
// somebody else's, everybody can write to it and it is not sticky, or it does not let the group in.
Error makeDirectory(const std::string& path, int group);
// Who can replace a folder on the way to what must be kept can replace that. denied: one of those on the way to `path`, links followed, or
// `path` itself, belongs to somebody else than this user or root, or all can write to it and it is not sticky. What is not there is not
// looked at.
Error checkWay(const std::string& path);
// Makes root, cluster and `directory` below it as needed.
Error makeDirectories(const Paths& paths, const std::string& directory, int group);

// Removes the files of a node but its lock; who maps them keeps what it holds. Only for who has the lock.
void unlinkNodeFiles(const Paths& paths, const std::string& node);
// Removes a node of which no owner runs, and its folder. unavailable: one runs.
Error removeNode(const Paths& paths, const std::string& node);

// Opens with `flags`, creates (never follows a link, never replaces) and locks: flock, exclusive. unavailable, with what `held`
// says: somebody has the lock; denied: what is there is no regular file. The descriptor is a blocking one.
Result<Descriptor> openLocked(const std::string& path, int flags, const std::function<std::string()>& held);

// Files that a process has made, or opened, and that others find by their names. Whoever removes or replaces one leaves the process with
// something that nobody comes to any more; and a lock on what has no name keeps nobody out.
class NamedFiles {
 public:
  // As it is now. A directory, a socket, anything.
  Error add(const std::string& path);
  // The first one whose name leads nowhere, or to something else, or that has become shorter.
  Error look() const;

 private:
  struct File {
    std::string path;
    uint64_t device, inode;
    int64_t bytes;
  };
  std::vector<File> files_;
};

// A file that is locked while its owner lives: flock, which the kernel drops with the last descriptor or mapping.
class LockFile {
 public:
  bool acquired() const { return static_cast<bool>(fd_); }
  // Does `path` lead to it?
  bool named(const std::string& path) const;
  // unavailable says who has it.
  static Result<LockFile> acquire(const std::string& path, const std::string& what);
  // Has somebody the lock of `path`? Nobody if there is no such file. unseen: this process may not open it, or not look for it, and the
  // kernel shows nobody who has it.
  enum class Taken { no, yes, unseen };
  static Taken taken(const std::string& path);
  static bool held(const std::string& path) { return taken(path) == Taken::yes; }
  // The process that has locked the file, as the kernel and /proc of this process number it. 0: nobody, or one that cannot be seen
  // from here (another pid namespace, a file system that the kernel lists under another device). What is written in the file is for
  // people alone: it may be the number of anybody.
  static long holder(const std::string& path);
  // "process 4711", or "a process that cannot be seen from here".
  static std::string whoHolds(const std::string& path);

 private:
  Descriptor fd_;
};

}  // namespace fluxon::shm
