// A Raft group under faults, without RPCs: members crash, lose their power and their stores, pause,
// lose touch, and have clocks and disks that err; messages are lost, late, out of order, and come
// again at any age; members are replaced and demoted, and the lead is handed over. The scenario
// judges Raft's properties after each step, and the histories of clients.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::erpc::raft {

fuzz::Scenario raft_scenario();

}  // namespace pyrdma::erpc::raft
