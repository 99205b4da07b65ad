// Words with many writers (paper, section 5.1.1). The official copy of a word is at one host.
// Remote atomics, reads and writes of all participants work on this copy.
//
// The host's own operations go through its NIC too, because atomics of a NIC are atomic only with
// each other, not with atomics of the CPU. An AtomicVar is one word. AtomicVars holds many words in
// one region per host, with word i at participant i modulo the number of participants: a region or
// a channel per word would fill the caches of the NIC.
#pragma once
#include <string>

#include "base/assert.h"
#include "systems/loco/channel.h"

namespace pyrdma::loco {

class AtomicVars : public Channel {
 public:
  AtomicVars(Manager& manager, std::string name, std::uint64_t count,
             std::vector<NodeId> participants = {}, Placement placement = Placement::kHost)
      : Channel(manager, std::move(name), std::move(participants)), count_(count) {
    make(placement);
  }
  AtomicVars(Channel& parent, std::string_view name, std::uint64_t count,
             Placement placement = Placement::kHost)
      : Channel(parent, name), count_(count) {
    make(placement);
  }

  std::uint64_t count() const { return count_; }
  NodeId host_of(std::uint64_t i) const { return participants()[i % participants().size()]; }
  /// Returns the place of word i, for requests that are posted together with other requests.
  std::uint64_t offset_of(std::uint64_t i) const { return i / participants().size() * 8; }
  const RemoteRegion& at(NodeId host) const { return remote(host, 0); }
  /// Returns word i in this node's memory, for plain reads; nullptr when the word is on another
  /// node or on the NIC.
  std::uint64_t* local(std::uint64_t i) const { return local(host_of(i), offset_of(i)); }
  std::uint64_t* local(NodeId host, std::uint64_t offset) const {
    if (local_.data == nullptr || host != self()) return nullptr;
    return reinterpret_cast<std::uint64_t*>(local_.data + offset);
  }

  // Asynchronous; `old_value` is a block of 8 bytes that belongs to the NIC until the key is
  // complete.
  AckKey fetch_add(Caller& me, std::uint64_t i, std::uint64_t addend, const MemRef& old_value) {
    return me.fetch_add(host_of(i), at(host_of(i)), offset_of(i), addend, old_value.sge(8));
  }
  AckKey compare_swap(Caller& me, std::uint64_t i, std::uint64_t expected, std::uint64_t desired,
                      const MemRef& old_value) {
    return me.compare_swap(host_of(i), at(host_of(i)), offset_of(i), expected, desired,
                           old_value.sge(8));
  }
  AckKey load(Caller& me, std::uint64_t i, const MemRef& into) {
    return me.read(host_of(i), at(host_of(i)), offset_of(i), into.sge(8));
  }
  AckKey store(Caller& me, std::uint64_t i, const MemRef& from) {
    AckKey key = me.write(host_of(i), at(host_of(i)), offset_of(i), from.sge(8));
    return key;
  }

  // Blocking forms for one caller; a round trip each. They throw Error(kUnavailable), not definite,
  // when the host does not answer.
  std::uint64_t fetch_add(Caller& me, std::uint64_t i, std::uint64_t addend) {
    return manager().bugs().fetch_add(*this, i, addend, [&] {
      return one(me, i, [&](const MemRef& block) { return fetch_add(me, i, addend, block); });
    });
  }
  std::uint64_t compare_swap(Caller& me, std::uint64_t i, std::uint64_t expected,
                             std::uint64_t desired) {
    return one(me, i,
               [&](const MemRef& block) { return compare_swap(me, i, expected, desired, block); });
  }
  std::uint64_t load(Caller& me, std::uint64_t i) {
    return one(me, i, [&](const MemRef& block) { return load(me, i, block); });
  }

 private:
  void make(Placement placement);
  [[noreturn]] void throw_unreachable(std::uint64_t i, fabric::Status status) const;
  template <class Post>
  std::uint64_t one(Caller& me, std::uint64_t i, Post&& post) {
    PYRDMA_CHECK(i, <, count_);
    InFlight word(me.block(8));
    word.key = post(word.block);
    const fabric::Status status = word.key.wait();
    if (status != fabric::Status::kSuccess) throw_unreachable(i, status);
    return *word.block.as<std::uint64_t>();
  }
  std::uint64_t count_;
  LocalRegion local_;
};

/// One word at the participant `host`.
class AtomicVar : public Channel {
 public:
  AtomicVar(Manager& manager, std::string name, NodeId host, std::vector<NodeId> participants = {},
            Placement placement = Placement::kHost);
  AtomicVar(Channel& parent, std::string_view name, NodeId host,
            Placement placement = Placement::kHost);
  /// In the host's memory, with a value.
  AtomicVar(Channel& parent, std::string_view name, NodeId host, std::uint64_t initial);

  NodeId host() const { return host_; }
  const RemoteRegion& at() const { return remote(host_, 0); }
  AckKey fetch_add(Caller& me, std::uint64_t addend, const MemRef& old_value) {
    return me.fetch_add(host_, at(), 0, addend, old_value.sge(8));
  }
  AckKey compare_swap(Caller& me, std::uint64_t expected, std::uint64_t desired,
                      const MemRef& old_value) {
    return me.compare_swap(host_, at(), 0, expected, desired, old_value.sge(8));
  }
  AckKey load(Caller& me, const MemRef& into) { return me.read(host_, at(), 0, into.sge(8)); }
  AckKey store(Caller& me, const MemRef& from) { return me.write(host_, at(), 0, from.sge(8)); }

 private:
  void make(Placement placement, std::uint64_t initial = 0);
  NodeId host_;
};

}  // namespace pyrdma::loco
