// LinkTable: the links of an owner, in the order of preference. Each fetch goes by the first link that reaches its peer and can be
// started; another link is another row. The table publishes an export on every link that runs. An export has ended when each link that
// was told to withdraw it has reported that nobody reads it.
//
// start() starts the rows that listen, the first fetch that it reaches starts any other. A link runs until the table ends. One thread;
// only the start of a link blocks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host.h"
#include "link/link.h"

namespace fluxon::owner {

class LinkTable {
 public:
  struct Row {
    const char* name;   // for people
    const char* entry;  // the NAME in what owners register (link.h); null: the link has no entry
    bool listens;
    std::function<bool(const Fetch&)> reaches;
    std::function<Result<std::unique_ptr<link::Link>>()> start;
  };
  struct Events {
    std::function<void(link::Link&)> started;         // whoever owns the table calls reap() when its eventFd() is readable
    std::function<void(const std::string&)> refused;  // a link cannot be started; another one that reaches the peer is tried
    std::function<void(uint64_t id, const Error&)> fetched;
    std::function<void(ExportId)> unexported;
  };
  // Fetches write into `segment`.
  LinkTable(char* segment, std::vector<Row>, Events);

  // Starts the rows that listen. Errors: those of the first that cannot be started.
  Error start();
  // The row's link reaches any peer that has registered an entry of that name.
  static std::function<bool(const Fetch&)> registers(const char* entry);
  // What to register: the entries of the links that listen, "" if none does.
  std::string address() const;
  void setIncarnation(Incarnation);

  // Hands the fetches for one peer to its link together. fetched() refuses, within the call, what no link takes.
  void fetch(std::vector<Fetch>);
  void cancelAll();
  void publish(ExportId, const char* data, uint64_t bytes, uint64_t ready);
  void advance(ExportId, uint64_t ready);
  void fail(ExportId);
  void unpublish(ExportId);
  // Hands on what the link reports.
  void reap(link::Link&);

  // Of all links together.
  link::LinkCounters counters() const;
  // Those of the links that run.
  std::vector<std::string> engines() const;

 private:
  struct Running {
    Row row;
    std::unique_ptr<link::Link> link;  // null: not started
  };
  Error open(Running&);
  // Errors: no link reaches the peer, or none of those that do can be started.
  Result<Running*> choose(const Fetch&);
  link::Fetch toLink(Fetch) const;
  void unpublished(ExportId);
  template <class Act>
  size_t each(Act) const;

  char* const segment_;
  const Events events_;
  Incarnation incarnation_;
  std::map<ExportId, size_t> withdrawn_;  // how many links have still to say that nobody reads it
  std::vector<Running> rows_;
};

}  // namespace fluxon::owner
