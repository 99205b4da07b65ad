// A node of the eRPC scenario: its endpoint, its handlers, and the operations of its client.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "systems/erpc/endpoint.h"
#include "systems/erpc/fuzz/world.h"

namespace pyrdma::erpc::scenario {

inline constexpr Time kLook = 50 * kMicrosecond;  // between two looks at the other nodes

class Node {
 public:
  Node(World& world, Env& env);
  ~Node() { world_.nodes[node_] = nullptr; }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  /// Carries out the rest of the node's plan, then what finish.cc says.
  void run();
  std::uint32_t server_sessions() const { return endpoint_->server_sessions(); }
  std::uint32_t connected_sessions() const;

 private:
  /// An answer that a handler owes.
  struct Owed {
    RequestHandle handle;
    std::uint64_t salt = 0;
    std::uint32_t bytes = 0;
    Time due = 0;
  };
  struct Pending {
    Node* node = nullptr;
    std::uint32_t call = 0;
    SessionId session = 0;
    MsgBuffer *request = nullptr, *response = nullptr;
    std::optional<Owed> owed;  // of a handler that waits for this call
    bool has_ended = false;
    Time free_at = 0;  // the buffers are looked at until then
  };
  static void end(void* context, std::uint64_t tag, Outcome outcome);
  void ended(Pending& pending, Outcome outcome);
  void judge(const Pending& pending, Outcome outcome);

  void open();
  void carry_out_plan();
  /// Drops the endpoint as a crash would, with all requests.
  void drop();
  void close(bool says_so);
  void abandon();
  void register_handlers();
  void answer(Owed& owed);

  void act(const Planned& op);
  void call(const Planned& op);
  void burst(const Planned& op);
  void renew(const Planned& op);
  void crowd(const Planned& op);
  void reopen(const Planned& op);
  /// Begins a request. Returns false if the session's backlog is full.
  bool begin(SessionId session, NodeId server, const Planned& op, std::optional<Owed> owed = {});
  /// Returns the session, made if there is none or if it is lost; nothing without receives for it.
  std::optional<SessionId> session_to(NodeId target, std::uint32_t number);
  void check_counts();

  /// Runs the event loop until `ready()` or `deadline`; returns ready().
  bool serve(FunctionRef<bool()> ready, Time deadline);
  void tend();

  // finish.cc
  void finish();
  bool reach(Stage stage, const char* what);
  Time patience() const;
  void settle();
  void check_halves();
  void check_order();
  void check_sessions();
  bool knows_losses() const;
  void check_loss(SessionId session, NodeId target) const;
  void end_sessions();
  void call_everyone();

  World& world_;
  Env& env_;
  const NodeId node_;
  std::deque<Owed> owed_;
  std::deque<std::unique_ptr<Pending>> pending_;  // and those whose buffers are looked at
  std::uint32_t under_way_ = 0;
  std::uint32_t working_ = 0;                                    // handlers that run in workers
  std::vector<std::vector<std::optional<SessionId>>> sessions_;  // by target
  std::vector<SessionId> lost_;                                  // kept, with successors
  std::map<SessionId, std::uint32_t> made_after_;  // endings of the target at that time
  std::optional<std::uint64_t> mark_;              // of the operation, until a request takes it
  std::unique_ptr<Endpoint> endpoint_;
  // The destruction of the endpoint ends calls. Then no handler gets its answer.
  bool is_closing_ = false;
  struct Closing {
    bool& is_closing;
    ~Closing() { is_closing = true; }
  } closing_{is_closing_};
};

}  // namespace pyrdma::erpc::scenario
