// Replies: hands each answer of the master to the part that has asked. A reply of a kind that its request cannot get counts as a refusal
// (`protocol`), whatever else it says. One thread.
#pragma once

#include "gets.h"
#include "inventory.h"
#include "puts.h"
#include "questions.h"

namespace fluxon::owner {

class Replies {
 public:
  struct Parts {
    MasterCalls& calls;
    Standing& standing;
    SsdTier& ssd;
    Flights& flights;
    Gets& gets;
    Puts& puts;
    Questions& questions;
    Inventory& inventory;
  };
  explicit Replies(Parts parts) : parts_(parts) {}

  void heard(const rpc::Reply&, Time now);

  // Reports that the master did not accept, and answers of it that are none.
  uint64_t refused() const { return refused_; }

 private:
  void hand(Call&, const rpc::Reply&, Time now);
  void noteRefusal(Code code) { refused_ += code != Code::ok && code != Code::fenced; }

  Parts parts_;
  uint64_t refused_ = 0;
};

}  // namespace fluxon::owner
