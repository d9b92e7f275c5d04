#include "window.h"

#include <algorithm>

#include "base/mark.h"
#include "succession.h"

namespace fluxon::master {
namespace {

// The kinds of requests that may have to wait while the window is open.
struct Question {
  std::string key;          // that is changed, or asked about
  bool changes = true;      // it is acknowledged when changes are
  bool asks = false;        // it is answered when it is known whether the key exists
  bool everyKey = false;    // it is answered when the window has ended
  uint64_t timeLeftMs = 0;  // of who asks; 0: it is kept until it is carried out
};

struct QuestionOf {
  const Routes& routes;
  const Member& member;

  std::optional<Question> operator()(const rpc::GetStart& get) const { return Question{get.key, false, true, false, get.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::StatKey& stat) const { return Question{stat.key, false, true, false, stat.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::RemoveKey& remove) const {
    const KeyEntry* const entry = routes.find(remove.key);
    return Question{remove.key, true, !entry || !entry->routed(), false, remove.timeLeftMs};
  }
  std::optional<Question> operator()(const rpc::PutDone& done) const {
    const auto put = member.puts->find(done.put);
    if (put == member.puts->end()) return std::nullopt;
    return Question{std::string(put->second.key->key), true, put->second.mode.onExisting == PutMode::OnExisting::reject};
  }
  std::optional<Question> operator()(const rpc::PutReserved& put) const {
    return Question{put.key, true, put.mode.onExisting == PutMode::OnExisting::reject};
  }
  std::optional<Question> operator()(const rpc::LeaseRevoke& revoke) const { return Question{{}, true, false, false, revoke.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::CountKeys& count) const { return Question{{}, false, false, true, count.timeLeftMs}; }
  std::optional<Question> operator()(const rpc::ListKeys& list) const { return Question{{}, false, false, true, list.timeLeftMs}; }
  template <class Other>
  std::optional<Question> operator()(const Other&) const {
    return std::nullopt;
  }
};

}  // namespace

Window::Window(Term term, Time leasesEnd, Outgoing& out, Routes& routes, Bounds& bounds, Record& record, const Members& members,
               Events events)
    : term_(term),
      leasesEnd_(leasesEnd),
      out_(out),
      routes_(routes),
      bounds_(bounds),
      record_(record),
      members_(members),
      events_(std::move(events)) {
  for (const auto& [node, life] : record.durable().members) {
    if (life) expected_[node] = {life, leasesEnd};
  }
  if (!open()) bounds_.close();
}

bool Window::holds(Member& member, const rpc::Request& request, Time now) {
  const std::optional<Question> question = std::visit(QuestionOf{routes_, member}, request.body);
  if (!question) return false;
  if (!question->everyKey && (acknowledges_ || !question->changes) && (!question->asks || known(question->key))) return false;
  FLUXON_MARK("master: a request waits for the recovery window");
  const Time deadline = question->timeLeftMs != 0 ? now + timeLeft(question->timeLeftMs) : Time::never();
  held_.add(question->key, deadline, {member, request});
  return true;
}

// Whether the master knows that the key exists or not, although more inventories may come.
bool Window::known(const std::string& key) const {
  const KeyEntry* const entry = routes_.find(key);
  if (entry && (readable(*entry) || entry->change || entry->putId.term() == term_.value)) return true;
  return bounds_.of(key).term() == term_.value;
}

bool Window::offersLastTerm(const rpc::Registration& registration) const {
  const auto expected = expected_.find(registration.node);
  return registration.adopts && expected != expected_.end() && expected->second.givenUp == 0 &&
         registration.adopts == expected->second.life;
}

void Window::registered(Member& member, Time now) {
  if (!open()) return;
  if (member.listing == Listing::ofLastTerm || member.listing == Listing::ofBefore) listed(member, member.leaseEnd);
  advance(now);
}

void Window::listed(const Member& member, Time until) {
  const auto expected = expected_.find(member.node());
  if (expected != expected_.end()) expected->second.until = std::max(expected->second.until, until);
}

void Window::over(Member& member, Time now) {
  const auto expected = expected_.find(member.node());
  // A newcomer without the directory of the life that the record names proves nothing about that life.
  if (expected == expected_.end() || !vouches(member.registration(), expected->second.life)) return;
  expected_.erase(expected);
  advance(now);
  events_.goOn(held_.takeAll(), now);
}

std::vector<MemberRef> Window::listing() const {
  std::vector<MemberRef> all;
  for (const auto& [node, expected] : expected_) {
    const auto member = members_.find(node);
    if (member != members_.end()) all.emplace_back(*member->second);
  }
  return all;
}

// Gives up nodes that have not come, or that make no progress: the record says so on disk first, then the window stops waiting for them.
void Window::tick(Time now, Time heard) {
  std::vector<std::string> late;
  for (const auto& [node, expected] : expected_) {
    if (expected.givenUp == 0 && heard >= expected.until) late.push_back(node);
  }
  for (const std::string& node : late) {
    const auto found = members_.find(node);
    const MemberRef member = found == members_.end() ? MemberRef() : MemberRef(*found->second);
    if (member && member->state == MemberState::reporting && member->listing == Listing::ofLastTerm) {
      FLUXON_MARK("master: a member whose inventory makes no progress is given up");
      events_.giveUp(*member, now);
    }
    Expected& expected = expected_.at(node);
    expected.givenUp = record_.version();
    const Incarnation life = record_.lifeOf(node);
    if (life && !(member && member->listing == Listing::complete && life == member->incarnation())) {
      FLUXON_MARK("master: the recovery window ends without a node");
      expected.givenUp = record_.set(node, Incarnation());
    }
  }
  if (!late.empty()) persisted(record_.persisted(), now);
  for (const Deferred& each : held_.expired(now)) {
    FLUXON_MARK("master: a request waits for the recovery window until its deadline");
    out_.refuse(*each.member, each.request.id, Code::unavailable, "the recovery window is open: not every node has listed its values yet");
  }
}

Time Window::nextWake() const {
  Time next = held_.nextDeadline();
  for (const auto& [node, expected] : expected_) {
    if (expected.givenUp == 0) next = std::min(next, expected.until);
  }
  return next;
}

void Window::persisted(uint64_t version, Time now) {
  if (std::erase_if(expected_, [&](const auto& each) { return each.second.givenUp != 0 && each.second.givenUp <= version; }) > 0)
    advance(now);
}

// Called after each event that may let requests go on or close the window.
void Window::advance(Time now) {
  const bool registered = std::all_of(expected_.begin(), expected_.end(), [&](const auto& each) {
    const auto member = members_.find(each.first);
    return each.second.givenUp == 0 && member != members_.end() && vouches(member->second->registration(), each.second.life);
  });
  const bool before = std::exchange(acknowledges_, registered);
  if (open() && registered) FLUXON_MARK("master: changes are acknowledged while inventories come");
  if (!open()) bounds_.close();
  if (!open() || (registered && !before)) events_.goOn(held_.takeAll(), now);
}

}  // namespace fluxon::master
