#include "operator_verbs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"
#include "master_client.h"
#include "shm/paths.h"
#include "shm_files.h"

namespace fluxon::ctl {
namespace {

constexpr uint32_t kPage = 1000;  // routes or leases at a time: the largest page of the master

uint64_t usedBytes(const MemberInfo& member) { return member.segmentBytes - std::min(member.freeBytes, member.segmentBytes); }
bool lives(const MemberInfo& member) { return member.state != "left" && member.state != "fenced"; }
Cell signedNumber(const std::string& name, int64_t value) {
  return {name, std::to_string(value), std::to_string(value), Cell::Align::right};
}

bool showsSsd(const std::vector<MemberInfo>& members, const Options& options) {
  if (!options.config.owner.largeLimitBytes.empty()) return true;
  return std::any_of(members.begin(), members.end(), [](const MemberInfo& member) { return bool(member.ssdLife); });
}
// Cells of an SSD tier, of which people hear only where there is one. `known`: false where the node has none, or this host does not
// know.
Cell ssdCell(Cell cell, const MemberInfo& member, bool known, bool shown) {
  if (!known) cell.human = member.ssdLife ? "?" : "-", cell.json = "null";
  return shown ? cell : jsonOnly(cell);
}
Cell ssdReplicasCell(const MemberInfo& member, bool shown) {
  return ssdCell(number("ssd_replicas", member.ssdReplicas), member, bool(member.ssdLife), shown);
}

// The master does not know the space on an SSD: of the nodes of this host their ssdd does.
std::optional<SsddReport> ssdOf(const shm::Paths& paths, const MemberInfo& member) {
  if (!member.ssdLife) return std::nullopt;
  const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, member.node);
  if (!ssdd || !ssdd.value() || ssdd.value()->report.life != member.ssdLife) return std::nullopt;
  return ssdd.value()->report;
}

// The number of its own host, as that counts; of an owner of this host, whoever has the lock of the node.
ProcessId pidOf(const shm::Paths& paths, const MemberInfo& member) {
  if (!lives(member)) return {member.pid, ProcessId::Proof::past};
  const Result<DirectoryFile> directory = DirectoryFile::open(paths, member.node);
  const bool here = directory && directory.value().isServedBy(member.incarnation);
  return here ? lockHolder(paths.file(member.node, "lock")) : ProcessId{member.pid, ProcessId::Proof::proven};
}

// Where other owners fetch values of it.
Cell linkCell(const MemberInfo& member) { return {"link", member.link.empty() ? "off" : member.link, text("link", member.link).json}; }

std::vector<Cell> ownerCells(const shm::Paths& paths, const MemberInfo& member, bool ssdShown, bool linkShown) {
  const std::optional<SsddReport> ssd = ssdOf(paths, member);
  return {text("node", member.node),
          text("state", member.state),
          pidCell(pidOf(paths, member)),
          size("segment_bytes", member.segmentBytes),
          size("free_bytes", lives(member) ? member.freeBytes : 0),
          size("used_bytes", lives(member) ? usedBytes(member) : 0),
          number("replicas", member.replicas),
          ssdCell(size("ssd_bytes", ssd ? ssd->capacityBytes : 0), member, ssd.has_value(), ssdShown),
          ssdCell(size("ssd_used_bytes", ssd ? ssd->usedBytes : 0), member, ssd.has_value(), ssdShown),
          ssdReplicasCell(member, ssdShown),
          linkShown ? linkCell(member) : jsonOnly(linkCell(member)),
          urlCell(member.http)};
}

int status(MasterClient& master, const shm::Paths& paths, const Options& options) {
  const Result<MasterStatus> asked = master.status();
  if (!asked) return fail(asked.error());
  const Result<std::vector<MemberInfo>> members = master.members();
  if (!members) return fail(members.error());
  const MasterStatus& s = asked.value();
  const bool here = !options.config.common.master.enabled;
  const ProcessId pid = here ? lockHolder(paths.masterDir() + "/lock") : ProcessId{s.pid, ProcessId::Proof::proven};
  const bool ssdShown = showsSsd(members.value(), options);
  const bool linkShown = std::any_of(members.value().begin(), members.value().end(), [](const MemberInfo& m) { return !m.link.empty(); });
  const Cell listen = s.listen.empty() ? Cell{"listen", "off", "null"} : text("listen", s.listen);
  if (options.format == Format::json) {
    std::string owners;
    for (const MemberInfo& member : members.value()) {
      owners += (owners.empty() ? "" : ",") + jsonObject(ownerCells(paths, member, ssdShown, linkShown));
    }
    Rows(Format::json)
        .add({text("cluster", s.cluster),
              text("cluster_id", s.clusterId),
              number("term", s.term.value),
              text("incarnation", toString(s.master)),
              pidCell(pid),
              number("uptime_ms", s.uptimeMs),
              number("lease_ms", s.leaseMs),
              flag("recovering", s.recovering),
              number("keys", s.keys),
              number("puts_in_flight", s.inFlightPuts),
              listen,
              urlCell(s.http),
              {"owners", "", "[" + owners + "]"}});
    return 0;
  }
  const auto line = [](const std::string& name, const std::string& value) {
    emit(name + std::string(12 - name.size(), ' ') + value + "\n");
  };
  line("cluster", s.cluster + ", id " + s.clusterId);
  line("master", "pid " + pidCell(pid).human + ", term " + std::to_string(s.term.value) + ", incarnation " + toString(s.master) + ", up " +
                     formatDuration(s.uptimeMs));
  line("listen", listen.human);
  line("metrics", urlCell(s.http).human);
  line("lease", std::to_string(s.leaseMs) + " ms");
  line("recovering", s.recovering ? "yes" : "no");
  line("keys", std::to_string(s.keys) + ", puts in flight: " + std::to_string(s.inFlightPuts));
  if (members.value().empty()) {
    line("owners", "none");
    return 0;
  }
  emit("\n");
  Rows rows(Format::table);
  for (const MemberInfo& member : members.value()) rows.add(ownerCells(paths, member, ssdShown, linkShown));
  return 0;
}

int members(MasterClient& master, const shm::Paths& paths, const Options& options) {
  const Result<std::vector<MemberInfo>> members = master.members();
  if (!members) return fail(members.error());
  Rows rows(options.format);
  const bool ssdShown = showsSsd(members.value(), options);
  const auto wide = [&](const Cell& cell) { return options.wide ? cell : jsonOnly(cell); };
  for (const MemberInfo& m : members.value()) {
    rows.add({text("node", m.node),
              text("state", m.state),
              wide(text("incarnation", toString(m.incarnation))),
              pidCell(pidOf(paths, m)),
              signedNumber("lease_left_ms", m.leaseLeftMs),
              size("segment_bytes", m.segmentBytes),
              size("free_bytes", m.freeBytes),
              size("largest_free_bytes", m.largestFree),
              size("routed_bytes", m.routedBytes),
              size("leased_bytes", m.leasedBytes),
              size("reserved_bytes", m.reservedBytes),
              size("in_flight_bytes", m.inFlightBytes),
              size("retired_bytes", m.retiredBytes),
              number("replicas", m.replicas),
              ssdReplicasCell(m, ssdShown),
              number("waiting_puts", m.waitingPuts),
              ssdCell(text("ssd_life", toString(m.ssdLife)), m, bool(m.ssdLife), options.wide && ssdShown),
              wide(urlCell(m.http)),
              wide(linkCell(m)),
              wide(text("label", m.label))});
  }
  return 0;
}

constexpr useconds_t kLookUs = 200'000;
constexpr Duration kNoProgress = seconds(5);

// Looks until `done` says so of every member that is meant. Ends early, with what is left, when nothing has changed for a while and
// `--timeout` has passed.
int watch(MasterClient& master, const Options& options, const std::string& what,
          const std::function<bool(const std::vector<MemberInfo>&, std::string& left)>& done) {
  const Duration patience = options.timeoutMs ? milliseconds(*options.timeoutMs) : kNoProgress;
  std::string left, before;
  for (Time last = bootTime();;) {
    const Result<std::vector<MemberInfo>> members = master.members();
    if (!members) return fail(members.error());
    if (done(members.value(), left)) return 0;
    if (left != before) {
      if (options.format == Format::table) emit(what + ": " + left + "\n"), std::fflush(stdout);
      last = bootTime();
    } else if (bootTime() >= last + patience) {
      return fail({Code::timedOut, what + " goes on, but " + left});
    }
    before = left;
    ::usleep(kLookUs);
  }
}

int drain(MasterClient& master, const Options& options) {
  const std::string& node = options.nodes.front();
  const MasterClient::Drain what = options.cancel ? MasterClient::Drain::cancel : MasterClient::Drain::begin;
  if (const Error error = master.drain(node, what); !error.ok()) return fail(error);
  const bool waits = options.wait && !options.cancel;
  bool lost = false;
  std::optional<Incarnation> life;  // that is drained: the node may run again at once
  int status = !waits ? 0 : watch(master, options, "drain of " + node, [&](const auto& members, std::string& left) {
    for (const MemberInfo& member : members) {
      if (member.node != node || member.state == "left") continue;
      if (member.incarnation != life.value_or(member.incarnation)) continue;
      life = member.incarnation;
      if ((lost = !lives(member))) return true;
      left = std::to_string(member.replicas) + " values are there";
      return false;
    }
    return true;
  });
  if (lost) {
    status = fail({Code::unavailable, "node " + node +
                                          " ended before everything was elsewhere; the drain goes on when it is back "
                                          "(drain it again to forget it)"});
  }
  if (status == 0 && options.format == Format::json) Rows(Format::json).add({text("node", node), flag("left", waits)});
  const char* const outcome = options.cancel ? " is drained no more\n" : waits ? " has left\n" : " is being drained\n";
  if (status == 0 && options.format == Format::table) emit("node " + node + outcome);
  return status;
}

int evict(MasterClient& master, const Options& options) {
  const std::string node = options.nodes.empty() ? "" : options.nodes.front();
  if (const Error error = master.evict(node, options.percent); !error.ok()) return fail(error);
  const auto meant = [&](const MemberInfo& member) { return lives(member) && (node.empty() || member.node == node); };
  const int status = !options.wait ? 0 : watch(master, options, "evict", [&](const auto& members, std::string& left) {
    left.clear();
    for (const MemberInfo& member : members) {
      if (!meant(member) || usedBytes(member) <= member.segmentBytes / 100 * options.percent) continue;
      left += (left.empty() ? "" : ", ") + member.node + " has " + formatSize(usedBytes(member)) + " in use";
    }
    return left.empty();
  });
  if (status != 0 || options.format == Format::table) return status;
  const Result<std::vector<MemberInfo>> members = master.members();
  if (!members) return fail(members.error());
  Rows rows(Format::json);
  for (const MemberInfo& member : members.value()) {
    if (meant(member)) rows.add({text("node", member.node), number("used_bytes", usedBytes(member))});
  }
  return 0;
}

int routes(MasterClient& master, const Options& options) {
  Rows rows(options.format);
  std::string after = options.after;
  for (uint64_t left = options.limit == 0 ? UINT64_MAX : options.limit; left > 0;) {
    const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(left, kPage));
    const Result<std::vector<RouteInfo>> page = master.routes(options.prefix, after, wanted);
    if (!page) return fail(page.error());
    for (const RouteInfo& route : page.value()) {
      std::vector<Cell> row{version(route.putId),       number("bytes", route.bytes),
                            id("lease", route.lease),   number("puts_in_flight", route.inFlight),
                            list("nodes", route.nodes), list("ssd_nodes", route.ssdNodes)};
      for (Cell& cell : keyCells(route.key)) row.push_back(std::move(cell));
      rows.add(row);
    }
    rows.flush();
    if (page.value().size() < wanted) break;
    after = page.value().back().key;
    left -= wanted;
  }
  if (rows.empty()) complain("no keys");
  return 0;
}

int leases(MasterClient& master, const Options& options) {
  Rows rows(options.format);
  for (KeyLeaseId after;;) {
    const Result<std::vector<LeaseInfo>> page = master.leases(after, kPage);
    if (!page) return fail(page.error());
    for (const LeaseInfo& lease : page.value()) {
      rows.add({id("lease", lease.id.value), number("ttl_ms", lease.ttlMs), number("left_ms", lease.leftMs), number("keys", lease.keys)});
    }
    rows.flush();
    if (page.value().size() < kPage) break;
    after = page.value().back().id;
  }
  if (rows.empty()) complain("no key leases");
  return 0;
}

// A sample of the Prometheus text format, `name{label="value",...} number`, as JSON. Its escapes in labels are JSON's.
std::optional<std::vector<Cell>> sampleCells(const std::string& process, const std::string& line) {
  if (line.empty() || line[0] == '#') return std::nullopt;
  const size_t nameEnd = line.find_first_of("{ ");
  if (nameEnd == std::string::npos) return std::nullopt;
  std::string labels;
  size_t at = nameEnd;
  if (line[at] == '{') {
    for (++at; at < line.size() && line[at] != '}';) {
      const size_t equals = line.find("=\"", at);
      if (equals == std::string::npos) return std::nullopt;
      size_t end = equals + 2;
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      if (end >= line.size()) return std::nullopt;
      labels += (labels.empty() ? "" : ",") + jsonString(line.substr(at, equals - at)) + ":" + line.substr(equals + 1, end - equals);
      at = end + 1;
      if (at < line.size() && line[at] == ',') ++at;
    }
    ++at;
  }
  const size_t valueBegin = line.find_first_not_of(' ', at);
  if (valueBegin == std::string::npos) return std::nullopt;
  const std::string value = line.substr(valueBegin, line.find(' ', valueBegin) - valueBegin);
  const bool finite = value.find_first_not_of("0123456789+-.eE") == std::string::npos;
  return std::vector<Cell>{text("process", process),
                           text("name", line.substr(0, nameEnd)),
                           {"labels", "", "{" + labels + "}"},
                           {"value", "", finite ? value : jsonString(value)}};
}

void printPage(const Options& options, const std::string& process, const std::string& http, const std::string& page) {
  if (options.format == Format::table) {
    if (options.process.empty()) emit("# process " + process + " " + urlCell(http).human + "\n");
    emit(page);
    return;
  }
  Rows rows(Format::json);
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    if (const auto cells = sampleCells(process, page.substr(at, end - at))) rows.add(*cells);
    at = end + 1;
  }
}

// Where this host finds the pages of a process that listens at `http` on its own host, which may be another one.
Result<std::string> reachable(const Options& options, const shm::Paths& paths, const std::string& process, const std::string& http) {
  const bool isMaster = process == "master";
  const Endpoint& remote = options.config.common.master;
  if (!remote.enabled || isLoopback(remote)) return http;
  if (shm::LockFile::held(isMaster ? paths.masterDir() + "/lock" : paths.file(process, "lock"))) return http;
  const Result<Endpoint> parsed = parseEndpoint(http);
  if (!parsed || !(isLoopback(parsed.value()) || isAnyAddress(parsed.value()))) return http;
  if (isMaster && isAnyAddress(parsed.value())) return toString(Endpoint{true, remote.host, parsed.value().port});
  return Error{Code::unavailable,
               "the pages of " + process + " are at " + http + " of another host (http in its section: an address that others can reach)"};
}

int metrics(MasterClient& master, const shm::Paths& paths, const Options& options) {
  const Result<MasterStatus> asked = master.status();
  if (!asked) return fail(asked.error());
  const Result<std::vector<MemberInfo>> members = master.members();
  if (!members) return fail(members.error());
  struct Process {
    std::string name, http;
    bool ssdd = false;  // of this host
  };
  std::vector<Process> processes{{"master", asked.value().http}};
  for (const MemberInfo& member : members.value()) {
    if (lives(member)) {
      processes.push_back({member.node, member.http});
    } else if (member.node == options.process) {
      return fail({Code::unavailable, "node " + member.node + " has " + (member.state == "left" ? "left" : "been fenced")});
    }
  }
  for (const std::string& node : paths.nodes()) {
    const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, node);
    if (ssdd && ssdd.value() && ssdd.value()->alive.value_or(true)) processes.push_back({node + "/ssdd", ssdd.value()->report.http, true});
  }
  std::string known;
  bool found = false;
  int status = 0;
  for (const auto& [process, http, ssdd] : processes) {
    known += (known.empty() ? "" : ", ") + process;
    if (!options.process.empty() && options.process != process) continue;
    found = true;
    if (http.empty()) {
      if (!options.process.empty())
        return fail({Code::notEnabled, "http of " + process + " is off (http = \"127.0.0.1:0\" in its section)"});
      continue;
    }
    const Result<std::string> address = ssdd ? Result<std::string>(http) : reachable(options, paths, process, http);
    const Result<std::string> page = address ? master.page(address.value(), "/metrics") : address;
    if (!page) {
      status = fail(page.error());
    } else {
      printPage(options, process, address.value(), page.value());
    }
  }
  if (!found) return fail({Code::invalidArgument, "process '" + options.process + "' (running: " + known + ")"});
  return status;
}

}  // namespace

int operatorVerb(const Options& options) {
  const Result<shm::Paths> paths = shm::Paths::of(options.config.common.shmRoot, options.cluster);
  if (!paths) return fail(paths.error());
  const Result<std::unique_ptr<MasterClient>> master = MasterClient::connect(options.config.common, paths.value(), options.callTimeoutMs());
  if (!master) return fail(master.error());
  switch (options.verb) {
    case Verb::members: return members(*master.value(), paths.value(), options);
    case Verb::routes: return routes(*master.value(), options);
    case Verb::leaseList: return leases(*master.value(), options);
    case Verb::drain: return drain(*master.value(), options);
    case Verb::evict: return evict(*master.value(), options);
    case Verb::metrics: return metrics(*master.value(), paths.value(), options);
    default: return status(*master.value(), paths.value(), options);
  }
}

}  // namespace fluxon::ctl
