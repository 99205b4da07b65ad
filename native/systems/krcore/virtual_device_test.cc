// The fabric's contract on virtual queue pairs: what a program for verbs relies on.
#include "systems/krcore/virtual_device.h"

#include <cstring>

#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric {

/// The nodes of another world, each with a service and a device of virtual queue pairs.
class KrcoreWorld final : public World {
 public:
  KrcoreWorld(std::unique_ptr<World> inner, std::uint32_t nodes) : inner_(std::move(inner)) {
    krcore::Options options;
    options.cores = 2;
    services_.resize(nodes);
    std::vector<std::unique_ptr<Thread>> boots;
    for (NodeId node = 0; node < nodes; ++node) {
      boots.push_back(inner_->env(node).spawn("boot", [this, node, options] {
        services_[node] = std::make_unique<krcore::Service>(inner_->env(node), options);
      }));
    }
    for (const auto& boot : boots) boot->join();
    for (NodeId node = 0; node < nodes; ++node) {
      envs_.push_back(std::make_unique<krcore::VirtualEnv>(inner_->env(node), *services_[node]));
    }
  }
  Env& env(NodeId node) override { return *envs_[node]; }
  void kill(NodeId node) override { inner_->kill(node); }

 private:
  std::unique_ptr<World> inner_;
  std::vector<std::unique_ptr<krcore::Service>> services_;
  std::vector<std::unique_ptr<krcore::VirtualEnv>> envs_;
};

namespace {

template <int kWhich>
std::unique_ptr<World> make_krcore_world(std::uint32_t nodes) {
  return std::make_unique<KrcoreWorld>(make_world(kWhich == 0 ? "sim" : "shm", nodes), nodes);
}

const char* const kEarlySend = "a send may end before its receiver has posted a receive";
const char* const kCheckedEarly = "the post of a receive checks its region";
const char* const kPhysical = "the physical queue pair goes on";
const char* const kPeerUnaware = "a request that its own side refuses does not reach the peer";

const bool has_registered = [] {
  const std::map<std::string, std::string> left_out{
      {"TimesAtTheEndsOfTheirRanges", "the physical queue pair has the times of the service"},
      {"AccessRightsOfRegionAndQueuePair", "a queue pair grants what its regions grant"},
      {"AReceiveThatIsTooShort", kEarlySend},
      {"RequestsThatCannotBePosted", "there are no datagrams"},
      {"AnOverrunKillsTheCompletionQueue", "software queues grow"},
      {"NothingFollowsTheEndOfAQueuePair", kPhysical},
      {"FailedRequests", kPeerUnaware},
      {"Retries", kEarlySend},
      {"NoRetryMeansOneAttempt", kEarlySend},
      {"SeveralRetriesFollowTheFirstAttempt", kEarlySend},
      {"ErrorsOfUnsignaledRequestsComplete", kEarlySend},
      {"AWrongRemoteKeyOfEachOpcode", kPeerUnaware},
      {"AnUnalignedAtomicWithAWrongKey", kPeerUnaware},
      {"AReceiveWithoutItsRegion", kCheckedEarly},
      {"ARegionOfAnotherDomain", kCheckedEarly},
      {"ARegionWithoutTheRightOfLocalWrite", kCheckedEarly},
      {"MessagesOfNoBytes", "a request of no bytes names a region, too"},
      {"AnOverrunEndsTheQueuePairsWhoseCompletionsItLost", "software queues grow"},
      {"AMessageWhoseCompletionIsLostHasNoSuccess", "software queues grow"},
      {"ALaterOwnerOfANumberHearsNothing", kPhysical},
      {"AOneSidedResetReachesNobody", kPhysical},
      {"AResponderThatGetsReadyLateAnswers", kPhysical},
      {"AResponderThatIsNotReadyExceedsTheRetries", kPhysical},
  };
  other_worlds()["sim_krcore"] = {&make_krcore_world<0>, left_out};
  other_worlds()["shm_krcore"] = {&make_krcore_world<1>, left_out};
  return true;
}();

}  // namespace

}  // namespace pyrdma::fabric
