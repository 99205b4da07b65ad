// The connections of a member of a view: a reliable one to each other member. A view has its own
// connections and its own memory, so that nothing of an older view reaches it.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/spindle/options.h"
#include "systems/spindle/shape.h"

namespace pyrdma::spindle {

class Links {
 public:
  Links(Env& env, fabric::ProtectionDomain& domain, const Options& options, std::uint32_t members,
        Rank self);

  /// Address of the end that belongs to `peer`, another member.
  fabric::QpAddress address(Rank peer) const { return links_[peer].qp->address(); }
  /// Connects the own end and takes the peer's table. Blocks for the NIC's time. The second call
  /// for a peer does nothing.
  void connect(Rank peer, const fabric::QpAddress& to, const fabric::RemoteRegion& table);
  /// The peer has connected its end too: this member may write.
  void open(Rank peer) { links_[peer].is_open = links_[peer].is_connected; }
  bool is_open(Rank peer) const { return links_[peer].is_open && !links_[peer].is_broken; }
  bool is_broken(Rank peer) const { return links_[peer].is_broken; }

  /// The table of the peer; valid once connected.
  const fabric::RemoteRegion& table(Rank peer) const { return links_[peer].table; }

  /// Posts requests to an open peer with one doorbell, and waits for room in its send queue. The
  /// requests to a broken link are dropped. One thread at a time. The call sets wr_id and flags but
  /// kInline.
  void post(Rank peer, std::span<fabric::WorkRequest> requests) { post_to(peer, requests, false); }
  /// Writes one piece to the same offset in the table of an open peer; drops it for any other. An
  /// inline piece is at most max_inline() bytes and is copied now.
  void write(Rank peer, const fabric::Sge& piece, std::uint64_t offset, bool is_inline);
  /// Takes completions. Returns true if a link broke. Throws Error(kUnavailable) when the
  /// completion queue has overrun, as the calls that wait for room do.
  bool poll();
  /// Whether a call has waited for room since the last question.
  bool take_waited() { return std::exchange(has_waited_, false); }
  /// Writes no more to the peer: its NIC ends what is under way.
  void close(Rank peer);
  /// Lets is_drained() see the end of all requests so far. Waits for room, as post() does.
  void signal_last();
  /// The requests before signal_last() have ended. Polls.
  bool is_drained();
  /// Polls until all requests have ended, or the deadline.
  bool drain(Time deadline);
  std::uint64_t posted() const { return posted_requests_; }
  std::uint64_t doorbells() const { return doorbells_; }
  std::uint32_t max_inline() const { return max_inline_; }

 private:
  struct Link {
    std::unique_ptr<fabric::QueuePair> qp;
    fabric::RemoteRegion table;
    std::uint64_t posted = 0, completed = 0, signaled = 0;  // positions of requests
    bool is_connected = false, is_open = false, is_broken = false;
  };
  void post_to(Rank peer, std::span<fabric::WorkRequest> requests, bool is_last);
  bool has_room(const Link& link, std::size_t requests) const {
    return link.posted + requests - link.completed <= entries_;
  }
  void wait_for_room(Link& link, std::size_t requests);
  [[gnu::cold]] void break_link(Link& link);

  Env& env_;
  const Rank self_;
  std::uint32_t entries_, max_inline_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::vector<Link> links_;  // by rank; the own one is empty
  std::uint64_t posted_requests_ = 0, doorbells_ = 0;
  bool has_waited_ = false;
};

}  // namespace pyrdma::spindle
