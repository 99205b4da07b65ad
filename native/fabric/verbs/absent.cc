// This file is built where the headers of rdma-core are absent (see native/CMakeLists.txt).
// Everything else works there.
#include "base/error.h"
#include "fabric/verbs/choice.h"
#include "fabric/verbs/connection.h"
#include "fabric/verbs/node.h"

namespace pyrdma::fabric::verbs {

bool has_provider() { return false; }

std::string provider_problem() {
  const std::string missing = PYRDMA_VERBS_MISSING;
  return "verbs: this build has no provider for real NICs: " +
         (missing.empty() ? "it was configured with PYRDMA_VERBS=OFF"
                          : "these headers were missing at build time: " + missing) +
         "; sudo apt-get install -y libibverbs-dev librdmacm-dev, and build pyrdma again";
}

std::vector<Candidate> find_candidates() {
  throw Error(ErrorCode::kUnavailable, provider_problem());
}

std::unique_ptr<NodeDevice> open_device(Node& /*node*/, const Wish& /*wish*/) {
  throw Error(ErrorCode::kUnavailable, provider_problem());
}

std::unique_ptr<Listener> listen(const std::string& /*address*/, std::uint16_t /*port*/) {
  throw Error(ErrorCode::kUnavailable, provider_problem());
}

std::unique_ptr<Connection> connect(Env& /*env*/, QueuePair& /*queue_pair*/,
                                    const std::string& /*address*/, std::uint16_t /*port*/,
                                    std::span<const std::byte> /*private_data*/,
                                    Time /*deadline*/) {
  throw Error(ErrorCode::kUnavailable, provider_problem());
}

}  // namespace pyrdma::fabric::verbs
