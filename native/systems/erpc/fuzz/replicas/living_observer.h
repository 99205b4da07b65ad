// LivingObserver passes on what members report while their nodes live. A node that dies while it
// has lost its core goes on until its next wait. Nobody else sees what it does then.
#pragma once
#include <span>

#include "fabric/sim/cluster.h"
#include "systems/erpc/raft/observer.h"

namespace pyrdma::erpc::replicas {

class LivingObserver final : public raft::Observer {
 public:
  /// `inner` outlives the object. The cluster is set before a member runs.
  explicit LivingObserver(raft::Observer& inner) : inner_(inner) {}
  void watch(const fabric::sim::SimCluster& cluster) { cluster_ = &cluster; }

  void started(NodeId member, std::uint64_t term, std::uint64_t vote, std::uint64_t snapshot_index,
               std::uint64_t snapshot_term, std::span<const raft::EntryMark> log) override {
    if (lives(member)) inner_.started(member, term, vote, snapshot_index, snapshot_term, log);
  }
  void spoke(NodeId member, std::uint64_t term, std::uint64_t vote) override {
    if (lives(member)) inner_.spoke(member, term, vote);
  }
  void appended(NodeId member, const raft::EntryMark& entry) override {
    if (lives(member)) inner_.appended(member, entry);
  }
  void truncated(NodeId member, std::uint64_t last) override {
    if (lives(member)) inner_.truncated(member, last);
  }
  void stored(NodeId member, std::uint64_t last) override {
    if (lives(member)) inner_.stored(member, last);
  }
  void snapshot(NodeId member, std::uint64_t index, bool installed) override {
    if (lives(member)) inner_.snapshot(member, index, installed);
  }
  void leads(NodeId member, std::uint64_t term) override {
    if (lives(member)) inner_.leads(member, term);
  }
  void follows(NodeId member) override { inner_.follows(member); }
  void committed(NodeId member, std::uint64_t index, std::uint64_t term) override {
    if (lives(member)) inner_.committed(member, index, term);
  }
  void applied(NodeId member, std::uint64_t index, std::uint64_t digest) override {
    if (lives(member)) inner_.applied(member, index, digest);
  }
  void executed(NodeId member, std::uint64_t index, std::uint64_t client,
                std::uint64_t sequence) override {
    if (lives(member)) inner_.executed(member, index, client, sequence);
  }

 private:
  bool lives(NodeId member) const { return cluster_->is_up(member); }
  raft::Observer& inner_;
  const fabric::sim::SimCluster* cluster_ = nullptr;
};

}  // namespace pyrdma::erpc::replicas
