#include "systems/spindle/subgroup.h"

#include <algorithm>
#include <boost/container/static_vector.hpp>

#include "systems/spindle/scopes.h"

namespace pyrdma::spindle {

Subgroup::Subgroup(Env& env, const Options& options, const ViewShape& shape, std::uint32_t index,
                   Rank self, Table& table, std::span<const Layout> layouts, Links& links,
                   Bugs bugs)
    : env_(env),
      options_(options),
      shape_(shape.subgroups[index]),
      view_members_(shape.members),
      index_(index),
      self_(self),
      member_(shape_.member_index(self)),
      sender_(shape_.sender_index(self)),
      senders_(static_cast<std::uint32_t>(shape_.senders.size())),
      slot_bytes_(shape_.slot_bytes()),
      table_(table),
      layout_(table.layout()),
      layouts_(layouts),
      links_(links),
      bugs_(bugs),
      round_of_(is_sender() ? shape_.window : 0),
      rounds_(senders_),
      messages_(senders_) {
  for (const Rank sender : shape_.senders)
    guards_.push_back(table_.at(layout_.guard(index_, sender)));
  for (const Rank member : shape_.members) {
    received_by_.push_back(table_.at(layout_.received(index_, member)));
    if (!is_sender()) continue;
    freed_by_.push_back(table_.at(shape_.order == Order::kTotal
                                      ? layout_.delivered(index_, member)
                                      : layout_.consumed(index_, member) + 8 * sender_));
  }
}

namespace {

/// The requests of a push to one member, and the pieces of memory that they write.
class Posts {
 public:
  explicit Posts(const fabric::RemoteRegion& to) : to_(to) {}
  void add(const fabric::Sge& piece, std::uint64_t offset, bool is_inline) {
    pieces_.push_back(piece);
    fabric::WorkRequest& request = requests_.emplace_back();
    request.opcode = fabric::Opcode::kWrite;
    request.sges = &pieces_.back();
    request.sge_count = 1;
    request.flags = is_inline ? fabric::kInline : 0;
    request.remote_addr = to_.addr + offset;
    request.rkey = to_.rkey;
  }
  std::span<fabric::WorkRequest> span() { return {requests_.data(), requests_.size()}; }

 private:
  static constexpr std::size_t kMost = 6;  // two counters, two pieces of the ring, the guard
  const fabric::RemoteRegion& to_;
  boost::container::static_vector<fabric::Sge, kMost> pieces_;
  boost::container::static_vector<fabric::WorkRequest, kMost> requests_;
};

}  // namespace

Subgroup::RingPieces Subgroup::pieces_of(const Pushes& pushes) const {
  RingPieces pieces;
  for (std::uint64_t message = pushes.first; message < pushes.last;) {
    const std::uint64_t place = message % shape_.window;
    const std::uint64_t count = std::min(pushes.last - message, shape_.window - place);
    std::uint64_t bytes = count * slot_bytes_;
    message += count;
    if (options_.exact_bytes) bytes -= shape_.max_message - header(sender_, message - 1).bytes;
    pieces.push_back({place * slot_bytes_, bytes});
  }
  return pieces;
}

// Slots lie at another place in the table of each member, because a table has only the rings of its
// owner's subgroups. Rows lie at the same place. Words are copied at the post: the column may
// change before the NIC would read it, and a guard must not announce more than was pushed.
void Subgroup::push(const Pushes& pushes) {
  if (!pushes.any()) return;
  const Time begin = options_.timed ? env_.now() : 0;
  const fabric::MemoryRegion& region = table_.region();
  std::uint64_t guard = pushes.guard_value;
  const fabric::Sge guard_piece{reinterpret_cast<std::uint64_t>(&guard), sizeof guard,
                                region.lkey()};
  const auto pieces = pieces_of(pushes);
  for (const Rank peer : shape_.members) {
    if (peer == self_ || !links_.is_open(peer)) continue;
    const Scope step(env_, scope::push);
    Posts posts(links_.table(peer));
    const auto add_own = [&](std::uint64_t offset, std::uint32_t bytes) {
      posts.add(region.sge(offset, bytes), offset, bytes <= links_.max_inline());
    };
    if (pushes.received) add_own(layout_.received(index_, self_), 8);
    if (pushes.delivered) add_own(layout_.delivered(index_, self_), 8);
    if (pushes.consumed && shape_.sender_index(peer) != kNotHere)
      add_own(layout_.consumed(index_, self_), 8 * senders_);
    const auto add_guard = [&] {
      if (pushes.guard) posts.add(guard_piece, layout_.guard(index_, self_), true);
    };
    if (!bugs_.data_first()) add_guard();
    for (const RingPiece& piece : pieces) {
      posts.add(region.sge(layout_.ring(index_, sender_) + piece.offset,
                           static_cast<std::uint32_t>(piece.bytes)),
                layouts_[peer].ring(index_, sender_) + piece.offset, false);
    }
    if (bugs_.data_first()) add_guard();
    if (!posts.span().empty()) links_.post(peer, posts.span());
  }
  ++counters_.pushes;
  if (options_.timed) counters_.post_time += env_.now() - begin;
}

}  // namespace pyrdma::spindle
