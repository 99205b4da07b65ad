// The fuzz scenario `krcore`.
#pragma once
#include "fuzz/scenario.h"

namespace pyrdma::krcore {

fuzz::Scenario service_scenario();

}  // namespace pyrdma::krcore
