// The wrong steps of the deliberate bugs.
#include "systems/erpc/ordered_store/bugs.h"

#include "systems/erpc/ordered_store/ordered_store.h"

namespace pyrdma::erpc {

// LMDB refuses to renew a transaction that is open, and the old snapshot stays.
void StoreBugs::begin_once(StoreReader& reader) {
  reader.store_.lmdb_.txn_renew(reader.transaction_);
}

std::size_t StoreBugs::scan_halves(StoreReader& reader, std::uint64_t first,
                                   std::span<StoreEntry> out) {
  const std::size_t wanted = out.size() / 2, half = reader.scan_once(first, out.first(wanted));
  if (half == 0 || half < wanted) return half;
  Env& env = reader.store_.env_;
  env.sleep_until(env.now() + 200 * kMicrosecond);  // long enough to give the core to a writer
  return half + reader.scan_once(out[half - 1].key + 1, out.subspan(half));
}

}  // namespace pyrdma::erpc
