#include "systems/erpc/raft/kv_server.h"

#include <utility>

namespace pyrdma::erpc::raft {

KvAnswer KvServer::refusal(KvStatus status, std::uint64_t sequence) const {
  KvAnswer answer;
  answer.status = status;
  answer.sequence = sequence;
  const auto leader = member_.leader();
  if (leader && *leader != env_.node()) answer.leader = *leader + 1;
  return answer;
}

void KvServer::submit(ByteView bytes, std::function<void(const KvAnswer&)> done) {
  const auto command = decode_command(bytes);
  if (!command) {
    ++malformed_;
    done(refusal(KvStatus::kMalformed, 0));
    return;
  }
  const std::uint64_t sequence = command->sequence;
  if (in_flight_ >= options_.max_in_flight) {
    env_.reached("erpc/raft/busy");
    done(refusal(KvStatus::kBusy, sequence));
    return;
  }
  if (command->operation == KvOperation::kGet &&
      !options_.bugs.reads_through_log(member_.leads(), member_.heard_majority())) {
    KvAnswer answer = state_.get(command->key);
    answer.sequence = sequence;
    done(answer);
    return;
  }
  const Outcome outcome =
      member_.propose(bytes, [this, sequence, done](Outcome ended, const KvAnswer& answer) {
        --in_flight_;
        done(ended == Outcome::kDone ? answer : refusal(KvStatus::kNotLeader, sequence));
      });
  if (outcome == Outcome::kAccepted)
    ++in_flight_;
  else
    done(refusal(KvStatus::kNotLeader, sequence));
}

}  // namespace pyrdma::erpc::raft
