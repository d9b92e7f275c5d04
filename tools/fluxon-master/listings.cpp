#include "listings.h"

#include <algorithm>

namespace fluxon::master {
namespace {

constexpr uint64_t kLargestPage = 1024;  // entries of one list reply
constexpr uint64_t kCountSlice = 100;    // keys counted in one slice of work

}  // namespace

void Listings::stat(Member& member, OperationId id, const rpc::StatKey& stat) {
  const KeyEntry* const entry = routes_.find(stat.key);
  if (!entry || !readable(*entry)) return out_.refuse(member, id, Code::miss);
  rpc::KeyStat answer{entry->putId, entry->bytes, entry->lease, {}};
  for (const Replica& replica : entry->replicas) {
    const std::string& node = replica.member->node();
    if (!replica.readable() || std::count(answer.nodes.begin(), answer.nodes.end(), node) > 0) continue;
    answer.nodes.push_back(node);
  }
  out_.reply(member, id, std::move(answer));
}

void Listings::list(Member& member, OperationId id, const rpc::ListKeys& request) {
  rpc::KeyPage page;
  const uint64_t limit = std::min(request.limit == 0 ? kLargestPage : request.limit, kLargestPage);
  routes_.table().list(request.prefix, request.after, limit, [&](const KeyEntry& entry) {
    if (!readable(entry)) return false;
    page.keys.push_back({std::string(entry.key), entry.bytes, entry.putId});
    return true;
  });
  out_.reply(member, id, std::move(page));
}

void Listings::countSlice() {
  if (counts_.empty()) return;
  Count& count = counts_.front();
  if (!count.member.living()) return counts_.pop_front();
  uint64_t seen = 0;
  routes_.table().list(count.prefix, count.after, kCountSlice, [&](const KeyEntry& entry) {
    ++seen;
    count.keys += readable(entry);
    if (seen == kCountSlice) count.after = entry.key;
    return true;
  });
  if (seen == kCountSlice) return;
  out_.reply(*count.member, count.request, rpc::KeyCount{count.keys});
  counts_.pop_front();
}

}  // namespace fluxon::master
