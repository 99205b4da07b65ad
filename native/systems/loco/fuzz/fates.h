// How the nodes of a run end. No node recovers from a crash. A survivor that needs the dead node
// ends with an error, and the error must blame it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "fuzz/fault_phase.h"

namespace pyrdma::loco {

/// How far a node is: it runs; it has done its part, or an error has stopped it; a node has died,
/// and everything that this one has sent to living nodes is there; nothing is left to do.
enum class Stage : std::uint8_t { kRuns, kEnded, kSettled, kOver };

/// The ends of all nodes, seen from outside: all nodes of a simulation run on one thread.
class Fates {
 public:
  explicit Fates(NodeId nodes) : stages_(nodes), died_(nodes) {}

  void died(NodeId node) { died_[node] = true; }
  /// A node may die after any stage.
  void reached(NodeId node, Stage stage) { stages_[node] = stage; }
  /// Returns true when each node has reached the stage or died.
  bool all_reached(Stage stage) const;
  /// An operation of the node has failed. That is right only if the error blames a node that has
  /// died, or one that has itself failed rightly.
  void failed(NodeId node, const Error& error) { failures_.push_back({node, error}); }

  bool is_dead(NodeId node) const { return died_[node]; }
  bool any_dead() const;
  /// The nodes that live.
  std::vector<NodeId> survivors() const;
  /// Returns why survivors did not look around: `otherwise` if no node died. A literal.
  const char* why_nobody_looked(const char* otherwise) const {
    if (!any_dead()) return otherwise;
    return survivors().empty() ? "all nodes died" : "a node died before the others were ready";
  }
  /// Returns the text of each error that is not right.
  std::vector<std::string> wrong_errors() const;

 private:
  struct Failure {
    NodeId node;
    Error error;
  };
  std::vector<Stage> stages_;  // by node
  std::vector<bool> died_;     // by node
  std::vector<Failure> failures_;
};

/// Notes the death of a node: the unwinding of a killed node runs the destructor too.
class Ending {
 public:
  Ending(Fates& fates, fuzz::FaultPhase& phase, NodeId node)
      : fates_(fates), phase_(phase), node_(node) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() {
    if (returns_) return;
    fates_.died(node_);
    phase_.crashed();
  }
  void returns() { returns_ = true; }

 private:
  Fates& fates_;
  fuzz::FaultPhase& phase_;
  const NodeId node_;
  bool returns_ = false;
};

}  // namespace pyrdma::loco
