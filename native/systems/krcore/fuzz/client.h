// A client of the KRCore scenario: it carries out its plan over several queue pairs, with requests
// outstanding, and judges what comes back.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "systems/krcore/fuzz/world.h"

namespace pyrdma::krcore::scenario {

/// The begin of each message.
struct MessageStart {
  std::uint64_t stream = 0, number = 0;
  std::uint64_t sum = 0;  // of all but itself
};

inline std::uint64_t sum_of_body(const MessageStart& start, std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof start) return 0;
  return checksum(bytes.subspan(sizeof start), mix64(start.stream) ^ start.number ^ 1);
}

/// Pieces of a client's memory. One is used again at once when its request has succeeded, otherwise
/// when nobody can read or write it any more.
class Pieces {
 public:
  Pieces(std::uint64_t at, std::uint32_t count, std::uint64_t bytes);
  /// Returns its offset; nothing if all are in use.
  std::optional<std::uint64_t> take(Time now);
  void give(std::uint64_t offset) { free_.push_back(offset); }
  void give_later(std::uint64_t offset, Time now) { resting_.emplace_back(now, offset); }

 private:
  std::vector<std::uint64_t> free_;
  std::deque<std::pair<Time, std::uint64_t>> resting_;
};

/// A posted request whose end the client has not seen.
struct Posted {
  enum class Kind : std::uint8_t {
    kWrite,
    kRead,
    kAdd,
    kSharedWrite,
    kSharedRead,
    kSharedAdd,
    kMessage,
    kLoan,  // to a region of another client
    kBad,
  };
  Kind kind = Kind::kWrite;
  bool is_signaled = true;
  bool is_last = false;  // of its operation
  std::uint64_t wr_id = 0;
  std::uint64_t mark = 0;             // of the operation
  std::uint64_t piece = 0;            // of the memory
  std::uint32_t word = 0;             // kRead, kAdd: of the place
  std::uint64_t expected = kUnknown;  // likewise
  std::uint64_t number = 0;           // of a register's operation
  std::uint64_t drained = 0;          // kSharedRead: that of the write before it
  std::uint64_t message = 0;          // kMessage: how many were sent with it
  Time at = 0;
};

class Client {
 public:
  Client(World& world, Service& service, std::uint32_t number);
  void run();

 private:
  /// A queue pair to a node, with what its place there must hold when all that was posted has
  /// happened.
  struct Link {
    Queue queue;
    NodeId target = 0;
    std::uint32_t lane = 0;
    std::uint64_t stream = 0;
    std::uint32_t life = 0;  // of the target
    std::uint32_t place = 0;
    std::uint64_t words[kWords] = {};
    std::deque<Posted> open;
    Time made = 0, alive = 0;  // alive: when the latest request that has succeeded was posted
    bool is_sure = false;  // that it leads to this life: its node had met that, or it has worked
    bool has_failed = false;
    bool has_failed_request = false;  // a one-sided one: none succeeds behind it
  };
  using Name = std::pair<NodeId, std::uint32_t>;  // target and lane
  /// What is posted in one call.
  struct List {
    std::deque<fabric::Sge> sges;
    std::vector<fabric::WorkRequest> requests;
    std::vector<Posted> posted;
  };

  // client.cc
  void act(const Planned& op);
  void end_operation(std::uint64_t mark);
  void finish_all();
  void try_all();
  bool reaches(NodeId target);
  void try_stale();
  Link* link_to(NodeId target, std::uint32_t lane, bool may_be_stale = false);
  bool begin(Link& link);
  void end_connection(Link& link);
  void drop(Link& link);
  void renew(Link& link, std::uint64_t draw);
  void move(Link& link, std::uint64_t draw);
  World::Places& places_at(NodeId target);

  // requests.cc
  std::byte* at(std::uint64_t piece) const { return memory_.data + piece; }
  bool add(List& list, Posted posted, fabric::Opcode opcode, std::uint64_t addr, std::uint32_t key);
  bool give_up(List& list);
  bool writes(Link& link, std::uint64_t draw);
  bool add_one(Link& link, std::uint64_t draw);
  bool shared(Link& link, std::uint64_t draw);
  bool message(Link& link, std::uint32_t bytes);
  void malformed(Link& link, std::uint64_t draw);
  bool breaks(Link& link);
  void break_under(Link& link, std::uint64_t draw);
  void go_another_way(Link& link, std::uint64_t draw);
  /// Returns false if nothing was posted.
  bool post(Link& link, List& list);
  void take_failures(Link& link);
  void wait(Link& link, std::size_t most);
  void take(Link& link, const fabric::Completion& wc);
  void end(Link& link, const Posted& posted, fabric::Status status);
  void succeeded(Link& link, const Posted& posted);
  void failed(Link& link, fabric::Status status, const char* what);
  std::uint64_t cell_at(const Link& link, std::uint32_t word) const;
  std::uint64_t shared_at(const Link& link, std::uint32_t word) const;

  // regions.cc
  void lend(const Planned& op);
  void use(Link& link, std::uint64_t draw);
  void use_loan(Link& link, std::size_t number, bool alone);
  void try_ended_loan(Link& link);
  bool is_of_ended_loan(const Posted& posted, fabric::Status status) const;
  std::optional<Registration> region_of(std::uint64_t bytes);
  void try_old_key(Link& link, std::uint64_t draw);
  void give_back(std::uint64_t draw);
  void look_at_heirs();

  World& world_;
  Service& service_;
  Env& env_;
  const std::uint32_t number_;
  App app_;
  Registration memory_;
  Pieces words_, messages_;
  std::map<Name, Link> links_;
  std::vector<std::size_t> lent_;   // of World::loans
  std::deque<Registration> heirs_;  // regions that nobody else knows
  std::uint64_t mark_ = kUnknown;   // of the operation
  std::uint64_t next_wr_id_ = 1;
};

}  // namespace pyrdma::krcore::scenario
