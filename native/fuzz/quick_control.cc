#include "fuzz/quick_control.h"

#include <algorithm>

namespace pyrdma::fuzz {

void hasten_control_path(fabric::sim::SimProfile& profile) {
  constexpr double kMost = 5, kMostOnNic = 0.5;  // us
  for (double* cost : {&profile.control_open_us, &profile.control_create_us,
                       &profile.control_register_us, &profile.control_handshake_us})
    *cost = std::min(*cost, kMost);
  for (double* cost : {&profile.control_command_us, &profile.control_create_qp_command_us,
                       &profile.control_register_page_us})
    *cost = std::min(*cost, kMostOnNic);
}

}  // namespace pyrdma::fuzz
