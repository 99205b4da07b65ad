// A register with one writer and a copy on every participant (paper, section 5.1.1).
//
// The owner's copy is the authority. Either the owner pushes to the other copies or the readers
// pull, as the channel above prefers. Both at once are wrong: a pull may bring back a value that a
// later push has replaced. A value of 1, 2, 4 or 8 bytes is an aligned word, which is never torn.
// Any other value carries a checksum, and readers try again while the checksum does not match.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/remote_word.h"
#include "systems/loco/channel.h"
#include "systems/loco/scopes.h"
#include "systems/loco/writer_turn.h"

namespace pyrdma::loco {

/// Says how a value gets from the owner's copy to the other copies. Peers have no other access.
enum class Updates : std::uint8_t { kPushed = 1, kPulled = 2, kEither = kPushed | kPulled };

template <class T>
class OwnedVar : public Channel {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr bool kWord =
      sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8;
  struct alignas(8) Checked {
    std::uint64_t sum;
    T value;
  };
  struct Word {
    T value;
  };
  using Copy = std::conditional_t<kWord, Word, Checked>;

 public:
  OwnedVar(Manager& manager, std::string name, NodeId owner, Updates updates,
           std::vector<NodeId> participants = {})
      : Channel(manager, std::move(name), std::move(participants)), owner_(owner) {
    make(updates);
  }
  /// `initial`, the same on all nodes, is the value of all copies before the first store.
  OwnedVar(Channel& parent, std::string_view name, NodeId owner, Updates updates,
           const T& initial = T{})
      : Channel(parent, name), owner_(owner), value_(initial) {
    make(updates);
  }

  NodeId owner() const { return owner_; }

  /// Sets the owner's copy; pulls see it from now on. The owner calls it, one thread at a time.
  void store(const T& value) {
    PYRDMA_CHECK(owner_, ==, self());
    set_copy(value);
    value_ = value;
  }
  // Pushes: the owner's calls, one thread at a time. A change of the caller waits until the pushes
  // of the caller before it are placed in all copies: an earlier value that came later would stay.
  // Throws then as Caller::wait_until does, and has pushed nothing.

  /// Writes the last stored value to the copy of `reader`. The call takes the value now.
  AckKey push_to(Caller& me, NodeId reader) { return push_to_each(me, {&reader, 1}); }
  /// Writes the last stored value to the copies of all participants. The call takes the value now.
  /// Cost: a request per reader.
  AckKey push(Caller& me) { return push_to_each(me, participants()); }

  /// Returns this node's copy if it is whole at the moment.
  std::optional<T> try_load() const { return value_of(*copy()); }
  /// Returns this node's copy. Waits while the copy is torn.
  T load(Caller& me) const {
    std::optional<T> value = try_load();
    if (!value) me.wait_until([&] { return (value = try_load()).has_value(); }, "complete value");
    return *value;
  }
  /// Reads the owner's copy over the network, puts it into this node's copy, and returns it. The
  /// status is the status of the request; the value is valid when the status is kSuccess. Pulls of
  /// other callers of this node come one after another: an earlier read that ended later would give
  /// both an old value. Throws as Caller::wait_until does. Cost: a round trip, and another for each
  /// time that the read overlaps a store.
  std::pair<fabric::Status, T> pull(Caller& me) {
    const auto is_ours = [&] { return !is_pulling_.exchange(true, std::memory_order_acquire); };
    if (!is_ours()) [[unlikely]]
      me.wait_until(is_ours, "pull of another caller");
    struct Turn {
      std::atomic<bool>& is_pulling;
      ~Turn() { is_pulling.store(false, std::memory_order_release); }
    } const turn{is_pulling_};
    InFlight pulled(me.block(sizeof(Copy)));
    while (true) {
      pulled.key = me.read(owner_, remote(owner_, 0), 0, pulled.block.sge(sizeof(Copy)));
      if (const auto status = pulled.key.wait(); status != fabric::Status::kSuccess)
        return {status, T{}};
      if (const std::optional<T> value = value_of(*pulled.block.template as<Copy>())) {
        if (owner_ != self()) set_copy(*value);
        return {fabric::Status::kSuccess, *value};
      }
      me.env().reached("owned_var/torn pull");
    }
  }

 private:
  using Bits = std::conditional_t<
      sizeof(T) == 1, std::uint8_t,
      std::conditional_t<sizeof(T) == 2, std::uint16_t,
                         std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

  static Bits to_bits(const T& value) {
    Bits bits{};
    std::memcpy(&bits, &value, std::min(sizeof bits, sizeof value));
    return bits;
  }
  static Checked with_sum(const T& value) {
    Checked checked;
    std::memset(static_cast<void*>(&checked), 0, sizeof checked);  // padding travels too
    checked.value = value;
    checked.sum = checksum_of(checked.value);
    return checked;
  }
  static std::optional<T> value_of(const Copy& shared) {
    if constexpr (kWord) {
      const Bits bits = load_acquire(reinterpret_cast<const Bits*>(&shared));
      T value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    } else {
      Checked seen;
      copy_from_shared(&seen, &shared, sizeof seen);
      if (seen.sum != checksum_of(seen.value)) return std::nullopt;
      return seen.value;
    }
  }
  /// Peers read the owner's copy to pull it. The owner writes the other copies to push.
  std::uint32_t rights(Updates updates) const {
    const Updates mine = owner_ == self() ? Updates::kPulled : Updates::kPushed;
    if ((static_cast<unsigned>(updates) & static_cast<unsigned>(mine)) == 0) return 0;
    return owner_ == self() ? fabric::kRemoteRead : fabric::kRemoteWrite;
  }
  void make(Updates updates) {
    assign("owner", owner_);
    local_ = add_region("copy", sizeof(Copy), rights(updates));
    expect_region("copy", sizeof(Copy));
    if constexpr (kWord) {
      copy()->value = value_;
    } else {
      const Checked checked = with_sum(value_);
      std::memcpy(static_cast<void*>(copy()), &checked, sizeof checked);
    }
    join();
  }
  void set_copy(const T& value) {
    if constexpr (kWord) {
      store_release(reinterpret_cast<Bits*>(copy()), to_bits(value));
    } else {
      const Checked checked = with_sum(value);
      copy_to_shared(copy(), &checked, sizeof checked);
    }
  }
  Copy* copy() const { return reinterpret_cast<Copy*>(local_.data); }
  MemRef stage(Caller& me) const {
    MemRef block = me.block(sizeof(Copy));
    if constexpr (kWord) {
      std::memcpy(block.data(), &value_, sizeof value_);
    } else {
      const Checked checked = with_sum(value_);
      std::memcpy(block.data(), &checked, sizeof checked);
    }
    return block;
  }
  AckKey push_to_each(Caller& me, std::span<const NodeId> readers) {
    const Scope step(me.env(), scope::push);
    const auto is_ours = [&] { return turn_.take(me, participants()); };
    if (!is_ours()) [[unlikely]]
      me.wait_until(is_ours, "placement of the pushes of another caller");
    AckKey all;
    while (!readers.empty()) {  // each block of the key keeps a block of memory
      const auto some = readers.first(std::min(readers.size(), runtime::AckBits::kMost));
      InFlight copy(stage(me));
      for (const NodeId reader : some) {
        if (reader == self()) continue;
        const Scope one(me.env(), scope::push_to_one);
        me.write(reader, remote(reader, 0), 0, copy.block.sge(sizeof(Copy)), copy.key);
      }
      copy.key.keep(std::move(copy.block));
      all.unite(std::move(copy.key));
      readers = readers.subspan(some.size());
    }
    return all;
  }

  NodeId owner_;
  LocalRegion local_;
  T value_{};        // the last stored value, for pushes
  WriterTurn turn_;  // of the pushes
  std::atomic<bool> is_pulling_{false};
};

}  // namespace pyrdma::loco
