// The clients of one thread of the workload erpc_raft: each has one operation on the replicated
// store under way, and tries it at one member after the other.
#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "measure/interval.h"
#include "measure/kv_history.h"
#include "systems/erpc/raft/kv_client.h"
#include "systems/erpc/raft/rpc_links.h"

namespace pyrdma::erpc {

struct RaftLoadShape {
  std::vector<NodeId> members;
  std::uint32_t in_flight = 1, value_bytes = raft::kMaxValue;
  std::uint64_t keys = 1;
  double reads = 0;
  std::uint64_t first_client = 1;  // number of the thread's first client; `in_flight` of them
  Time try_timeout = 0, pause = 0, patience = 0;
};

/// `endpoint`, `recorder` and `history` outlive the object, and the object outlives the endpoint's
/// requests: their end needs it. `history` may be null.
class RaftLoadClient {
 public:
  RaftLoadClient(Endpoint& endpoint, const RaftLoadShape& shape, Rng rng,
                 measure::ThreadRecorder& recorder, measure::KvHistory* history);
  RaftLoadClient(const RaftLoadClient&) = delete;
  RaftLoadClient& operator=(const RaftLoadClient&) = delete;

  /// Runs operations until one has ended, so that a leader is known. Throws what run() throws.
  void find_leader();
  /// Runs operations until the interval is over and the last one has ended. Throws Error(kTimeout)
  /// if an operation takes longer than `patience`, and Error(kInternal) for a wrong answer.
  void run(measure::Interval& interval);
  /// Tells all members that can be reached within `wait` that the thread sends no more.
  void say_finished(std::uint64_t number, Time wait);
  std::uint64_t tries() const;

 private:
  struct Client {
    Client(raft::KvClient made, std::uint32_t number) : logic(std::move(made)), index(number) {}
    raft::KvClient logic;
    const std::uint32_t index;  // in clients_
    bool is_get = false;
    std::uint64_t key = 0, word = 0;
    Time began = 0;
  };
  struct Try {
    MsgBuffer* request = nullptr;
    MsgBuffer* response = nullptr;
    std::uint32_t client = 0;
    std::uint64_t number = 0;  // of the client's tries
  };
  void begin(Client& client, Time now);
  void try_now(Client& client, Time now);
  void take_answer(Client& client, const raft::KvAnswer& answer, Time now);
  void serve();
  bool holds_word(const raft::Value& value, std::uint64_t& word) const;
  void record(const Client& client, const raft::KvAnswer& answer, std::uint64_t word, Time now);
  void complain(const std::string& what);
  static void end(void* context, std::uint64_t tag, Outcome outcome);

  Endpoint& endpoint_;
  Env& env_;
  const RaftLoadShape shape_;
  raft::PeerSessions sessions_;
  Rng rng_;
  measure::Histogram &put_latency_, &get_latency_;
  measure::KvHistory* const history_;
  measure::Interval* interval_ = nullptr;  // null while the leader is looked for
  std::deque<Client> clients_;
  std::deque<Try> tries_;
  std::vector<std::uint32_t> free_tries_;
  std::uint64_t word_;  // of the last value written, unlike all others
  std::uint32_t busy_ = 0, unanswered_ = 0;
  Time wake_ = kForever;  // the earliest time at which a client needs a try
  bool is_over_ = false;
  std::string problem_;
};

}  // namespace pyrdma::erpc
