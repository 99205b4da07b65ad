#include "systems/krcore/options.h"

#include <algorithm>

#include "base/error.h"
#include "base/quote.h"

namespace pyrdma::krcore {

namespace {

void check_range(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(option) + " is " + std::to_string(value) +
                                               "; it must be from " + std::to_string(least) +
                                               " to " + std::to_string(most));
}

}  // namespace

Options Options::public_code() {
  Options options;
  options.check_regions = false;
  options.rc_policy = RcPolicy::kAtOnce;
  options.zero_copy_above = options.message_bytes;
  return options;
}

void Options::check(NodeId nodes) const {
  check_range("cores", cores, 0, 256);
  check_range("dc_queue_pairs", dc_queue_pairs, 1, 256);
  check_range("rc_queue_pairs", rc_queue_pairs, 0, 4096);
  check_range("send_entries", send_entries, 2, 4096);
  check_range("completion_entries", completion_entries, 2, 4096);
  check_range("receive_buffers", receive_buffers, 4, 32768);
  check_range("message_bytes", message_bytes, 64, 16 << 20);
  check_range("zero_copy_above", zero_copy_above, 0, message_bytes);
  check_range("inbox_messages", inbox_messages, 1, 1 << 16);
  check_range("virtual_queue_pairs", virtual_queue_pairs, 1, 65535);
  check_range("nodes_known", nodes_known, nodes, 65000);
  check_range("regions", regions, 1, 60000);
  check_range("app_queues", app_queues, 1, 65535);
  check_range("frequent_samples", frequent_samples, 1, 1000);
  check_range("first_generation", first_generation, 1, 65535);
  check_range("first_epoch", first_epoch, 1, 65535);
  if (sample_interval <= 0 || ask_again <= 0)
    throw Error(ErrorCode::kInvalidArgument,
                "sample_interval and ask_again must be more than 0 ns");
  if (lease < kShortestLease)
    throw Error(ErrorCode::kInvalidArgument,
                "lease is " + std::to_string(lease) + " ns; give at least " +
                    std::to_string(kShortestLease) +
                    " ns, since a service announces long messages again within it");
  if (meta_servers.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "meta_servers is empty; name at least one node, such as [0]");
  }
  for (const NodeId server : meta_servers) {
    if (server >= nodes) {
      throw Error(ErrorCode::kInvalidArgument, "meta server " + std::to_string(server) +
                                                   " is no node; the cluster has nodes 0 to " +
                                                   std::to_string(nodes - 1));
    }
    if (std::ranges::count(meta_servers, server) > 1) {
      throw Error(ErrorCode::kInvalidArgument,
                  "meta_servers names node " + std::to_string(server) + " twice; name it once");
    }
  }
}

}  // namespace pyrdma::krcore
