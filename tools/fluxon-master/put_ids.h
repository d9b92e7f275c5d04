// PutIds: the versions of this term. They come from one counter and only grow; no earlier term has had one of them. One thread.
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
