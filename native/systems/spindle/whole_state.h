// State that the application saves and loads as a whole, for joiners: Upcalls::save and load. It
// moves in parts, which a member cuts from one snapshot.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace pyrdma::spindle {

class WholeState {
 public:
  using Save = std::function<std::optional<Bytes>(std::uint32_t subgroup)>;
  using Load = std::function<void(std::uint32_t subgroup, ByteView state)>;
  WholeState(std::size_t subgroups, Save save, Load load)
      : save_(std::move(save)), load_(std::move(load)), kept_(subgroups), coming_(subgroups) {}

  // What Upcalls::give_state, ask_state and take_state do.

  std::optional<Bytes> give(std::uint32_t subgroup, ByteView request) const;
  std::optional<Bytes> ask(std::uint32_t subgroup, bool begins);
  bool take(std::uint32_t subgroup, ByteView answer);
  /// Takes the snapshot of which give() gives parts, if the application has one.
  void save(std::uint32_t subgroup);
  /// Forgets the snapshots: from now on messages change the state.
  void drop();

 private:
  struct Snapshot {
    std::uint64_t sum = 0;  // checksum: parts of two snapshots do not mix
    Bytes bytes;
  };
  struct Coming {
    Snapshot snapshot;
    bool is_whole = false;
  };
  Save save_;
  Load load_;
  std::vector<std::optional<Snapshot>> kept_;
  std::vector<Coming> coming_;
};

}  // namespace pyrdma::spindle
