#include "measure/cpu_ops/code.h"

#include <algorithm>

#include "base/rng.h"

namespace pyrdma::measure {

struct RequestCode::Get final : Handler {
  std::uint64_t handle(Entry& entry, std::uint64_t /*now*/) override { return entry.value; }
};

struct RequestCode::Put final : Handler {
  std::uint64_t handle(Entry& entry, std::uint64_t now) override {
    if (entry.version < now) {
      entry.value = now;
      entry.version = now;
    }
    return entry.version;
  }
};

struct RequestCode::Lock final : Handler {
  std::uint64_t handle(Entry& entry, std::uint64_t now) override {
    const bool taken = entry.state != 0;
    entry.state = taken ? 0 : static_cast<std::uint32_t>(now & 7) + 1;
    return taken ? entry.version : now;
  }
};

RequestCode::RequestCode() {
  static Get get;
  static Put put;
  static Lock lock;
  handlers_ = {&get, &put, &lock};
  Rng rng(1, 0, "cpu_ops/code");
  for (Request& request : requests_) {
    request.key = static_cast<std::uint32_t>(rng.below(kEntries / 2)) + 1;
    request.kind = static_cast<std::uint32_t>((&request - requests_.data()) % 3);
  }
  for (std::uint32_t key = 1; key <= kEntries / 2; ++key) find(key).key = key;
}

// Open addressing, half full.
RequestCode::Entry& RequestCode::find(std::uint32_t key) {
  std::uint32_t at = (key * 2654435769U) >> 24;
  while (index_[at].key != key && index_[at].key != 0) at = (at + 1) % kEntries;
  return index_[at];
}

[[gnu::noinline]] void RequestCode::pass() {
  const Request& request = requests_[now_ % kRequests];
  Entry& entry = find(request.key);
  ++now_;
  std::uint64_t value = 0;
  if (request.kind == 1 && entry.state != 0) {  // locked: the put waits
    ++entry.version;
  } else {
    value = handlers_[request.kind]->handle(entry, now_);
  }
  acknowledged_[value % kPeers] = std::max(acknowledged_[value % kPeers], value);
  std::uint64_t behind = 0;
  for (const std::uint64_t up_to : acknowledged_) {
    if (up_to + kDone < now_) ++behind;
    asm volatile("" : "+r"(behind));  // peer by peer, without vectors
  }
  Done& done = done_[now_ % kDone];
  done.id = now_;
  done.value = value + behind;
  sum_ += done_[(now_ * 7) % kDone].value;
}

void RequestCode::run(std::uint64_t passes) {
  for (std::uint64_t i = 0; i < passes; ++i) pass();
}

}  // namespace pyrdma::measure
