#include "systems/tailwind/options.h"

#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

namespace {

void expect(bool holds, const char* option, std::uint64_t value, const std::string& what) {
  if (!holds)
    throw Error(ErrorCode::kInvalidArgument,
                "tailwind: " + std::string(option) + " is " + std::to_string(value) + "; " + what);
}

}  // namespace

void check(const Options& options, NodeId nodes) {
  expect(options.servers >= 1 && options.servers <= nodes, "servers", options.servers,
         "give 1 to " + std::to_string(nodes) + ", the nodes of the cluster");
  expect(options.coordinator < nodes, "coordinator", options.coordinator,
         "give a node of the cluster, 0 to " + std::to_string(nodes - 1));
  expect(options.replicas < options.servers, "replicas", options.replicas,
         "each lies at another server, so with " + std::to_string(options.servers) +
             " servers give at most " + std::to_string(options.servers - 1));
  expect(options.workers <= 64, "workers", options.workers, "give 0 to 64");
  expect(!options.group_commit || options.workers == 0, "workers", options.workers,
         "a worker writes to backups for one request at a time; with group_commit give 0");
  expect(options.segment_bytes >= (64U << 10) && options.segment_bytes < (16U << 20),
         "segment_bytes", options.segment_bytes, "give 64 KiB to less than 16 MiB");
  expect(options.log_bytes >= 2 * std::uint64_t{options.segment_bytes} &&
             options.log_bytes <= std::uint64_t{1} << 42,
         "log_bytes", options.log_bytes, "give two segments to 4 TiB");
  // A digest has 8 B for each segment of the log, and survivors of the cleaner.
  expect(
      16 * (options.log_bytes / options.segment_bytes) <= options.segment_bytes / 4, "log_bytes",
      options.log_bytes,
      "a segment's digest names all others, which limits the log to segment_bytes^2 / 64: give " +
          std::to_string(std::uint64_t{options.segment_bytes} * options.segment_bytes / 64) +
          " or less, or larger segments");
  expect(options.keys >= 1 && options.keys <= std::uint64_t{1} << 40, "keys", options.keys,
         "give 1 to 2^40");
  expect(options.buffers >= 2, "buffers", options.buffers, "give 2 or more");
  if (!(options.clean_below > 0 && options.clean_below <= 0.5))
    throw Error(ErrorCode::kInvalidArgument, "tailwind: clean_below is " +
                                                 std::to_string(options.clean_below) +
                                                 "; give a fraction above 0, at most 0.5");
  const std::initializer_list<std::pair<const char*, Time>> times{
      {"lease", options.lease},
      {"retry_pause", options.retry_pause},
      {"call_timeout", options.call_timeout},
      {"ping_interval", options.ping_interval},
      {"ping_timeout", options.ping_timeout},
      {"idle_after", options.idle_after},
      {"idle_sleep", options.idle_sleep}};
  for (const auto& [name, time] : times)
    expect(time > 0, name, static_cast<std::uint64_t>(time), "give more than 0 ns");
  expect(options.pings >= 1, "pings", options.pings, "give 1 or more");
  expect(options.partition_bytes >= 1, "partition_bytes", options.partition_bytes,
         "give 1 or more");
  expect(options.first_segment >= 1 && options.first_segment < Position::kSegments, "first_segment",
         options.first_segment, "give 1 to less than 2^40");
  expect(options.first_epoch < ClusterView::kEpochs, "first_epoch", options.first_epoch,
         "give less than 2^24");
  expect(options.partition_records >= 1, "partition_records", options.partition_records,
         "give 1 or more");
}

}  // namespace pyrdma::tailwind
