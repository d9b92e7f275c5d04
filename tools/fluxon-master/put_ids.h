// PutIds: hands out the versions of this term. One counter gives them in increasing order; no earlier term has given any of them. One
// thread.
#pragma once

#include "base/ids.h"

namespace fluxon::master {

class PutIds {
 public:
  explicit PutIds(Term term) : term_(term) {}
  PutId next() { return PutId(term_, ++sequence_); }
  Term term() const { return term_; }

 private:
  Term term_;
  uint64_t sequence_ = 0;
};

}  // namespace fluxon::master
