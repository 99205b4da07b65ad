// The common parameters of LOCO's workloads, and the options that follow from them.
#pragma once
#include <string>
#include <vector>

#include "measure/runtime_options.h"
#include "systems/loco/manager.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

using measure::with_runtime_parameters;

/// The parameter of the preset, and one for each switch of a lock, to set the switch alone.
inline std::vector<measure::ParameterSpec> with_preset(std::vector<measure::ParameterSpec> own) {
  own.push_back({"preset",
                 std::string("best"),
                 "",
                 "LOCO's protocol: the paper's steps, or with every switch on",
                 0,
                 0,
                 {kPresetNames.begin(), kPresetNames.end()},
                 "loco"});
  for (const LockSwitch& each : kLockSwitches) {
    own.push_back({each.name,
                   std::string("preset"),
                   "",
                   std::string("LOCO's locks: ") + each.meaning,
                   0,
                   0,
                   {"preset", "on", "off"},
                   "loco"});
  }
  return own;
}

inline Preset preset_of(const measure::Params& params) { return params.choice<Preset>("preset"); }

inline TicketLockOptions lock_options(const measure::Params& params) {
  TicketLockOptions options = TicketLockOptions::of(preset_of(params));
  for (const LockSwitch& each : kLockSwitches) {
    if (const std::string& text = params.text(each.name); text != "preset")
      options.*each.value = text == "on";
  }
  return options;
}

/// The parameter of how a node reaches data under a lock in its own memory.
inline measure::ParameterSpec own_memory_parameter() {
  return {"own_memory",
          std::string("preset"),
          "",
          "access to protected data in the node's own memory: through the nic, as other nodes do "
          "(paper), or by the cpu (best)",
          0,
          0,
          {"preset", "nic", "cpu"},
          "loco"};
}
inline bool by_cpu(const measure::Params& params) {
  const std::string& text = params.text("own_memory");
  return text == "cpu" || (text == "preset" && preset_of(params) == Preset::kBest);
}

inline ManagerOptions loco_options(const measure::Params& params) {
  ManagerOptions options;
  measure::set_runtime_options(params, "loco", options);
  return options;
}

}  // namespace pyrdma::loco
