// Devices: the disks of a node. Each root has its own thread and engine, so that a slow disk does not hold up the others:
//
//   control thread ── DiskJob ──► inbox ──► DeviceWorker of the root ── DiskResult ──► reap() on the control thread
//
// Shard ids count through all roots in order, from 0. I/O uses the descriptors of the roots, which hold the locks. Only the constructor,
// which waits for the engines, and close() block. The control thread makes all calls; any thread may call show() and pending().
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
  // Not ok: the system refused something when this was made, and it takes no jobs.
  const Error& error() const { return error_; }
  ~Devices() override;
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // Sets the segment that jobs use from now on. All jobs that use the one before must have ended.
  void setSegment(char* data, uint64_t bytes);
  // The first `bytes` of the segment are populated: registers them with the engines, piece by piece.
  void segmentPopulated(uint64_t bytes);

  void write(const WriteJob&) override;
  void read(const ReadJob&) override;
  void check(const CheckJob&) override;
  void cancelQueued(DeviceIndex) override;

  // Readable while there is something to reap.
  int eventFd() const { return bell_.get(); }
  std::vector<DiskResult> reap();

  // Ends all jobs; waits until the disk has answered those in flight. Their results can be reaped. Takes no jobs afterwards.
  void close();

  size_t count() const { return devices_.size(); }
  const char* engine() const { return engine_; }  // of the first one
  const DeviceCounters& counters(size_t device) const;
  // Fills in everything about a device except what concerns its records.
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
