// Devices: the disks of a node. Each root has a thread with an engine of its own, so that a slow disk holds up no other one:
//
//   control thread ── DiskJob ──► inbox ──► DeviceWorker of the root ── DiskResult ──► reap() on the control thread
//
// Shards are numbered through all roots in their order, from 0 on; I/O goes through the descriptors of the roots, which hold the
// locks. Nothing here blocks but the constructor, which waits for the engines, and close().
// All calls come from the control thread, but for show() and pending(): any.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device_worker.h"
#include "disk.h"
#include "shm/mapped_file.h"
#include "ssd/roots.h"
#include "ssd/ssdd_format.h"
#include "storage/file_engine.h"

namespace fluxon::ssdd {

class Devices final : public Disk {
 public:
  // Called on the thread of the device.
  using MakeEngine = std::function<Result<std::unique_ptr<FileEngine>>(const EngineSettings&)>;
  struct Settings {
    WriteMode mode = WriteMode::singleBuffer;
    uint64_t bufferBytes = 256 * kMiB;  // of all devices
    MakeEngine makeEngine;
  };

  // `roots` live as long as this.
  Devices(const std::vector<ssd::Root>& roots, const Settings&);
  // What the system has refused when this was made; then it takes no jobs.
  const Error& error() const { return error_; }
  ~Devices() override;
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // The memory that jobs name from now on. Jobs that name the one before have ended.
  void setSegment(char* data, uint64_t bytes);
  // So much of it has its pages, from the beginning on: it is registered with the engines, a piece after the other.
  void segmentPopulated(uint64_t bytes);

  void write(const WriteJob&) override;
  void read(const ReadJob&) override;
  void check(const CheckJob&) override;
  void cancelQueued(DeviceIndex) override;

  // Readable while there is something to reap.
  int eventFd() const { return bell_.get(); }
  std::vector<DiskResult> reap();

  // Ends all jobs, those that are in flight when the disk has answered; their results can be reaped. Nothing is taken afterwards.
  void close();

  size_t count() const { return devices_.size(); }
  const char* engine() const { return engine_; }  // of the first one
  const DeviceCounters& counters(size_t device) const;
  // Everything of a device but what belongs to records.
  void show(size_t device, ssd::ShownDevice&) const;

 private:
  struct Device;
  struct Place {
    size_t device, shard;
  };

  static std::atomic<uint64_t>& queued(Device&, const DiskJob&);
  void give(ShardId, DiskJob);
  char* inSegment(uint64_t offset, uint64_t bytes) const;
  void run(Device&, const Settings&);
  void hand(std::vector<DiskResult>&);

  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Place> places_;  // by ShardId
  const char* engine_ = "";
  char* segment_ = nullptr;
  uint64_t segmentBytes_ = 0;
  bool closed_ = false;
  Error error_;
  shm::Descriptor bell_;
  std::mutex mutex_;  // over results_
  std::vector<DiskResult> results_;
};

}  // namespace fluxon::ssdd
