// The times of leases (section 4.2): how long a reader may use what a READ of a table has told it,
// and how long the owner of memory waits before it gives the memory to others.
//
// A reader counts from before its READ was posted, on its own clock. A request is posted within the
// attempts of a request after its check, or checked again (vqp/held.cc), and may be under way for
// so long itself. An announced payload is read within a lease of the announcement, which is under
// way for so long itself. Clocks may drift by a thousandth.
#pragma once
#include "env/env.h"
#include "systems/krcore/options.h"

namespace pyrdma::krcore {

class Lease {
 public:
  /// `options` outlive it.
  explicit Lease(const Options& options) : options_(options) {}
  /// The end of the lease of what a READ has found that was posted at `asked` or later and has
  /// ended now.
  Time end(Time asked, Env& env) const {
    return (options_.bugs.has(Bug::kLeaseFromAnswer) ? env.now() : asked) + options_.lease;
  }
  /// A request that was checked at `checked` must be checked again before its post.
  bool is_late(Time checked, Time now) const { return now - checked > options_.attempts(); }
  /// The time from the end of a registration until its memory may have another use.
  Time grace() const {
    if (options_.bugs.has(Bug::kNoWaitForLease)) return 0;
    return options_.lease + options_.lease / 1000 + 4 * options_.attempts();
  }

 private:
  const Options& options_;
};

}  // namespace pyrdma::krcore
