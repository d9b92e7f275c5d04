// The link over tcp. A value is cut into pieces, which are spread over a few connections; each piece comes with its crc32c, which is
// always checked. The only verb on the wire is `read` (link_format.h), and the source answers it straight from its segment.
//
// One thread of the link does all input and output, by io_uring or poll(). It alone touches connections, fetches and exports; the calls
// post to it.
#pragma once

#include <memory>
#include <string>

#include "link/link.h"
#include "link/tcp/settings.h"
#include "net/secret.h"
#include "shm/client_format.h"
#include "shm/directory_view.h"

namespace fluxon::link::tcp {

class LinkThread;

class TcpLink final : public Link {
 public:
  // Waits until the link's thread runs. `own` is the directory that peers read from; the link holds its values by words of `hazards`,
  // which the owner's scans must see; both outlive the link. Errors: badConfig (settings), system and denied (of the socket).
  static Result<std::unique_ptr<TcpLink>> start(const Settings&, const net::Secret&, const std::string& node, const shm::DirectoryView& own,
                                                shm::ClientFile& hazards);
  ~TcpLink() override;  // waits until the thread has ended

  // With the port that the kernel chose.
  std::string address() const override { return address_; }
  // Who we are in hellos from now on. Connections that were accepted under an earlier incarnation are closed.
  void setIncarnation(Incarnation) override;

  // All fetches of one call go to the peer in as few frames as they fit into.
  void fetch(const PeerAddress&, std::vector<Fetch>) override;
  void cancel(uint64_t id) override;
  void cancelAll() override;

  void publish(uint64_t exportId, const char* data, uint64_t bytes, uint64_t ready) override;
  void advance(uint64_t exportId, uint64_t ready) override;
  void fail(uint64_t exportId) override;
  void unpublish(uint64_t exportId) override;

  int eventFd() const override;
  LinkEvents reap() override;

  LinkCounters counters() const override;
  // "io_uring" or "poll".
  std::string engine() const override;

 private:
  TcpLink();
  std::unique_ptr<LinkThread> thread_;
  std::string address_;
};

}  // namespace fluxon::link::tcp
