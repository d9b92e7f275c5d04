#include "ssd_verbs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <optional>

#include "base/clock.h"
#include "base/size.h"
#include "client/client.h"

namespace fluxon::ctl {
namespace {

constexpr std::chrono::seconds kLook(1);  // at how far a scrub is
constexpr int kDamageFound = 1;           // exit status

const char* nameOf(std::optional<bool> alive) { return !alive ? "not to be seen" : *alive ? "runs" : "has ended"; }

std::string progressOf(const SsddReport& report) {
  return std::to_string(report.scrubChecked) + " of " + std::to_string(report.scrubTotal) + " entries checked, " +
         std::to_string(report.scrubDamaged) + " damaged";
}

Cell unknownUnless(const std::optional<uint64_t>& value, Cell (*cell)(const std::string&, uint64_t), const std::string& name) {
  if (value) return cell(name, *value);
  return {name, "?", "null", Cell::Align::right};
}

std::vector<Cell> deviceCells(const SsddReport::Device& device) {
  return {{"path", quoted(device.path), text("", device.path).json},
          text("state", device.state),
          number("stalled", device.stalled),
          size("capacity_bytes", device.capacityBytes),
          unknownUnless(device.usedBytes, size, "used_bytes"),
          size("block_bytes", device.blockBytes),
          flag("direct", device.direct),
          size("registered_bytes", device.registeredBytes),
          number("reads_queued", device.readsQueued),
          number("writes_queued", device.writesQueued),
          number("oldest_ms", device.oldestMs),
          number("reads", device.reads),
          number("writes", device.writes),
          number("writes_direct", device.writesDirect),
          size("read_bytes", device.readBytes),
          size("written_bytes", device.writtenBytes),
          number("read_errors", device.readErrors),
          number("write_errors", device.writeErrors)};
}

std::vector<Cell> shardCells(uint64_t index, const SsddReport::Shard& shard) {
  return {number("shard", index),
          unknownUnless(shard.device, number, "device"),
          text("state", shard.state),
          size("capacity_bytes", shard.capacityBytes),
          number("head", shard.head),
          number("tail", shard.tail),
          size("used_bytes", shard.usedBytes),
          size("dead_bytes", shard.deadBytes),
          number("entries", shard.entries),
          number("read_pins", shard.readPins),
          number("commit_pins", shard.commitPins),
          number("writers", shard.writers),
          number("waiting", shard.waiting)};
}

std::vector<Cell> counterCells(const SsddReport& report) {
  std::vector<Cell> cells;
  for (const SsddReport::Counter& counter : report.counters) cells.push_back(number(counter.name, counter.value));
  return cells;
}

std::vector<std::vector<Cell>> devicesOf(const SsddReport& report) {
  std::vector<std::vector<Cell>> rows;
  for (const SsddReport::Device& device : report.devices) rows.push_back(deviceCells(device));
  return rows;
}
std::vector<std::vector<Cell>> shardsOf(const SsddReport& report) {
  std::vector<std::vector<Cell>> rows;
  for (const SsddReport::Shard& shard : report.shards) rows.push_back(shardCells(rows.size(), shard));
  return rows;
}

Cell objects(const std::string& name, const std::vector<std::vector<Cell>>& rows) {
  std::string json;
  for (const std::vector<Cell>& row : rows) json += (json.empty() ? "" : ",") + jsonObject(row);
  return {name, "", "[" + json + "]"};
}

void printJson(const std::string& node, const SsddCopy& ssdd) {
  const SsddReport& report = ssdd.report;
  const auto known = [](const std::string& name, std::optional<bool> value) {
    return value ? flag(name, *value) : Cell{name, "?", "null"};
  };
  std::vector<Cell> row{text("node", node),
                        text("life", toString(report.life)),
                        pidCell(ssdd.pid),
                        known("alive", ssdd.alive),
                        text("owner", toString(report.owner)),
                        known("attached", ssdd.attached),
                        number("attached_ms", report.attachedMs),
                        text("engine", report.engine),
                        urlCell(report.http),
                        number("capacity_bytes", report.capacityBytes),
                        number("used_bytes", report.usedBytes),
                        number("entries", report.entries),
                        flag("paused", report.paused)};
  for (Cell& cell : counterCells(report)) row.push_back(std::move(cell));
  row.insert(row.end(),
             {number("scrub_checked", report.scrubChecked), number("scrub_total", report.scrubTotal),
              number("scrub_damaged", report.scrubDamaged), number("devices_hidden", report.devicesHidden),
              number("shards_hidden", report.shardsHidden), objects("devices", devicesOf(report)), objects("shards", shardsOf(report))});
  Rows(Format::json).add(row);
}

void printTable(const std::vector<std::vector<Cell>>& table, const char* what, uint64_t hidden) {
  emit("\n");
  {
    Rows rows(Format::table);
    for (const std::vector<Cell>& row : table) rows.add(row);
  }
  if (table.empty()) emit(std::string("no ") + what + "\n");
  if (hidden > 0) emit(std::to_string(hidden) + " more " + what + " are not shown\n");
}

void printTables(const std::string& node, const SsddCopy& ssdd) {
  const SsddReport& report = ssdd.report;
  const auto line = [](const std::string& name, const std::string& value) {
    emit(name + std::string(8 - name.size(), ' ') + value + "\n");
  };
  line("node", node);
  line("ssdd", std::string(nameOf(ssdd.alive)) + ", pid " + pidCell(ssdd.pid).human + ", life " + toString(report.life) + ", attached " +
                   formatDuration(report.attachedMs) + " ago" + (ssdd.attached.value_or(true) ? "" : ", not any more"));
  line("engine", report.engine);
  line("holds", formatSize(report.usedBytes) + " of " + formatSize(report.capacityBytes) + ", " + std::to_string(report.entries) +
                    " entries" + (report.paused ? "; paused: nothing is written" : ""));
  line("metrics", urlCell(report.http).human);
  if (report.scrubTotal > 0) line("scrub", progressOf(report));
  printTable({counterCells(report)}, "counters", 0);
  printTable(devicesOf(report), "devices", report.devicesHidden);
  printTable(shardsOf(report), "shards", report.shardsHidden);
}

int scrubNode(const shm::Paths& paths, const std::string& node, const Options& options) {
  const auto refuse = [&](const Error& error) {
    return fail({error.code, "node " + node + (error.detail.empty() ? "" : ": " + error.detail)});
  };
  const Time begun = bootTime();
  const Result<std::unique_ptr<client::Client>> client =
      client::Client::connect(paths.root, paths.cluster, node, "fluxonctl", false, begun + milliseconds(options.callTimeoutMs()));
  if (!client) return refuse(client.error());
  const Time deadline = options.timeoutMs ? begun + milliseconds(*options.timeoutMs) : Time::never();
  auto asked = std::async(std::launch::async, [&] { return client.value()->scrub(deadline); });
  for (std::string shown; asked.wait_for(kLook) != std::future_status::ready;) {
    const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, node);
    if (options.format == Format::json || !ssdd || !ssdd.value()) continue;
    const std::string progress = progressOf(ssdd.value()->report);
    if (progress != shown) emit("scrub of " + node + ": " + progress + "\n"), std::fflush(stdout);
    shown = progress;
  }
  const Result<client::Scrubbed> scrubbed = asked.get();
  if (!scrubbed) return refuse(scrubbed.error());
  const auto& [checked, damaged] = scrubbed.value();
  if (options.format == Format::json) {
    Rows(Format::json).add({text("node", node), number("checked", checked), number("damaged", damaged)});
  } else {
    emit("node " + node + ": " + std::to_string(checked) + " entries checked, " + std::to_string(damaged) + " damaged\n");
  }
  return damaged == 0 ? 0 : kDamageFound;
}

}  // namespace

void printSsdd(const std::string& node, const SsddCopy& ssdd, Format format) {
  format == Format::json ? printJson(node, ssdd) : printTables(node, ssdd);
}

Error noSsdd(const std::vector<std::string>& nodes) {
  std::string names;
  for (const std::string& node : nodes) names += (names.empty() ? "" : ", ") + node;
  return {Code::notEnabled, "no ssdd of " + names + " has attached (it needs large_file_paths and large_limit_size in [owner])"};
}

int scrub(const shm::Paths& paths, const std::vector<std::string>& nodes, const Options& options) {
  int status = 0;
  bool any = false;
  for (const std::string& node : nodes) {
    const Result<std::optional<SsddCopy>> ssdd = readSsdd(paths, node);
    if (ssdd && !ssdd.value()) continue;
    any = true;
    const int ended = ssdd ? scrubNode(paths, node, options) : fail(ssdd.error());
    status = std::max(status, ended);  // an error says more than damage
  }
  return any ? status : fail(noSsdd(nodes));
}

}  // namespace fluxon::ctl
