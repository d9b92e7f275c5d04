#include "replies.h"

#include <optional>
#include <variant>

#include "base/mark.h"

namespace fluxon::owner {

void Replies::heard(const rpc::Reply& reply, Time now) {
  std::optional<Call> call = parts_.calls.take(reply.id);
  if (!call) return;
  if (reply.code == Code::fenced) {
    FLUXON_MARK("owner: an answer says that it is fenced");
    parts_.standing.fence();
  }
  if (rpc::fits(call->request, reply)) {
    hand(*call, reply, now);
  } else {
    const uint64_t before = refused_;
    hand(*call, {reply.id, Code::protocol, "the master gave an answer that is none to what it was asked", {}}, now);
    refused_ = before + 1;  // whoever else was told
  }
  parts_.calls.sendHeldBack();
}

void Replies::hand(Call& call, const rpc::Reply& reply, Time now) {
  struct To {
    Replies& self;
    Parts& to;
    Call& call;
    const rpc::Reply& reply;
    Time now;
    void copyDecided() {
      const auto* copy = std::get_if<Call::Slot>(&call.about);
      if (copy)
        to.flights.landed(copy->slot, reply, now);
      else
        self.noteRefusal(reply.code);
    }
    void operator()(const rpc::Heartbeat&) { to.standing.beatAnswered(reply.id, reply.code, now); }
    void operator()(const rpc::PutStart&) { to.puts.started(call, reply, now); }
    void operator()(const rpc::PutDone&) { to.puts.decided(call, reply, now); }
    void operator()(const rpc::PutReserved&) { to.puts.decided(call, reply, now); }
    void operator()(const rpc::Spread&) { to.puts.spread(call, reply); }
    void operator()(const rpc::Reserve& asked) { to.puts.reserved(asked, reply); }
    void operator()(const rpc::GetStart&) { to.gets.routed(call, reply, now); }
    void operator()(const rpc::GetDone&) { copyDecided(); }
    void operator()(const rpc::ReplicateDone&) { copyDecided(); }
    void operator()(const rpc::InventoryPage& page) { to.inventory.answered(reply.id, page, reply, now); }
    void operator()(const rpc::SsdCommit&) { to.ssd.committed(std::get<Call::Persists>(call.about).ids, reply); }
    void operator()(const rpc::SsdEvicted& told) {
      to.ssd.evictedTold(told.values.size());
      self.noteRefusal(reply.code);
    }
    void operator()(const rpc::StatKey&) { to.questions.answered(call, reply); }
    void operator()(const rpc::RemoveKey&) { to.questions.answered(call, reply); }
    void operator()(const rpc::CountKeys&) { to.questions.answered(call, reply); }
    void operator()(const rpc::ListKeys&) { to.questions.answered(call, reply); }
    void operator()(const rpc::LeaseGrant&) { to.questions.answered(call, reply); }
    void operator()(const rpc::LeaseKeepAlive&) { to.questions.answered(call, reply); }
    void operator()(const rpc::LeaseRevoke&) { to.questions.answered(call, reply); }
    void operator()(const rpc::PutAbort&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::Release&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::Dropped&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::InvalidateDone&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::ReclaimDone&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::SsdLife&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::Staged&) { self.noteRefusal(reply.code); }
    void operator()(const rpc::Unstaged&) { self.noteRefusal(reply.code); }
  };
  std::visit(To{*this, parts_, call, reply, now}, call.request.body);
}

}  // namespace fluxon::owner
