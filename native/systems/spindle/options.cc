#include "systems/spindle/options.h"

#include <algorithm>

#include "base/error.h"
#include "systems/spindle/table.h"

namespace pyrdma::spindle {

Options Options::of(Preset preset) {
  Options options;
  const auto has = [preset](Preset least) { return preset >= least; };
  options.batch_delivery = options.batch_receive = options.batch_send = has(Preset::kBatching);
  options.null_sends = has(Preset::kBatchingNulls);
  options.post_unlocked = has(Preset::kPaper);
  options.exact_bytes = options.short_sends = options.skip_quiet = options.unlocked_upcalls =
      options.batch_upcall = has(Preset::kBest);
  return options;
}

namespace {

void check(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("spindle: ") + name + " is " + std::to_string(value) + "; give " +
                  std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

Options checked(const Options& given, const fabric::Capabilities& device) {
  Options options = given;
  check("heartbeat", options.heartbeat, 1000, 3600 * kSecond);
  check("suspicion_timeout", options.suspicion_timeout, 2 * options.heartbeat, 3600 * kSecond);
  check("join_timeout", options.join_timeout, options.suspicion_timeout, 36000 * kSecond);
  check("idle_sleep", options.idle_sleep, 1, kSecond);
  check("send_entries", options.send_entries, 16, 32768);
  check("retry_count", options.retry_count, 0, 7);
  check("first_round", static_cast<std::int64_t>(options.first_round), 0,
        static_cast<std::int64_t>(SlotHeader::kTags));
  check("timeout_us", options.timeout_us, 1, 10'000'000);
  if (device.max_queue_entries != 0)
    options.send_entries = std::min(options.send_entries, device.max_queue_entries);
  options.timeout_us = std::max(options.timeout_us, device.least_timeout_us);
  return options;
}

}  // namespace pyrdma::spindle
