#include "fabric/sim/faults.h"

namespace pyrdma::fabric::sim {

void Reachability::block(std::uint32_t from, std::uint32_t to, Fault why, Picos until) {
  if (from == to) return;
  if (until_.empty()) until_.resize(nodes_ * std::size_t{nodes_});
  Way& way = until_[from * std::size_t{nodes_} + to];
  if (until > way.until) way = {until, why};
}

}  // namespace pyrdma::fabric::sim
