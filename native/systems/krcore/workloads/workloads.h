// The workloads of KRCore.
#pragma once
#include <memory>

#include "measure/workload.h"

namespace pyrdma::krcore {

std::unique_ptr<measure::Workload> make_connect();
std::unique_ptr<measure::Workload> make_mesh();
std::unique_ptr<measure::Workload> make_one_sided();
std::unique_ptr<measure::Workload> make_echo();
std::unique_ptr<measure::Workload> make_batch();
std::unique_ptr<measure::Workload> make_race();
std::unique_ptr<measure::Workload> make_spike();
std::unique_ptr<measure::Workload> make_lite();
std::unique_ptr<measure::Workload> make_lite_connect();
std::unique_ptr<measure::Workload> make_transfer();
std::unique_ptr<measure::Workload> make_ring();

}  // namespace pyrdma::krcore
