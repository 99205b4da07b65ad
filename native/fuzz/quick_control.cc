#include "fuzz/quick_control.h"

#include <algorithm>

namespace pyrdma::fuzz {

void hasten_control_path(fabric::sim::SimProfile& profile) {
  constexpr double kMost = 5, kMostOnNic = 0.5;  // us
  for (double* cost :
       {&profile.control_open_us, &profile.control_create_pd_us, &profile.control_create_cq_us,
        &profile.control_create_qp_us, &profile.control_modify_init_us,
        &profile.control_modify_rtr_us, &profile.control_modify_rts_us,
        &profile.control_handshake_us, &profile.control_register_us, &profile.control_destroy_us})
    *cost = std::min(*cost, kMost);
  for (double* cost : {&profile.control_create_cq_nic_us, &profile.control_create_qp_nic_us,
                       &profile.control_modify_nic_us, &profile.control_register_page_us})
    *cost = std::min(*cost, kMostOnNic);
}

}  // namespace pyrdma::fuzz
