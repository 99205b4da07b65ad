#include "fabric/sim/control_path.h"

#include <algorithm>
#include <mutex>

#include "fabric/sim/nic.h"

namespace pyrdma::fabric::sim {

ControlPath::ControlPath(Nic& nic)
    : nic_(nic), profile_(nic.fabric().profile), memory_map_(nic.env()) {}

void ControlPath::open() {
  enter_kernel(profile_.control_open_us);
  run_commands(profile_.control_open_commands, profile_.control_command_us);
}

void ControlPath::create_domain() {
  enter_kernel(0);
  run_commands(profile_.control_pd_commands, profile_.control_command_us);
}

void ControlPath::create_queue() {
  enter_kernel(profile_.control_create_us);
  run_commands(1, profile_.control_command_us);
}

void ControlPath::create_queue_pair() {
  enter_kernel(profile_.control_create_us);
  run_commands(profile_.control_create_qp_commands, profile_.control_create_qp_command_us);
}

void ControlPath::modify() {
  enter_kernel(0);
  run_commands(1, profile_.control_command_us);
}

void ControlPath::register_memory(std::size_t bytes) {
  enter_kernel(profile_.control_register_us);
  nic_.fabric().nic(nic_.node(), 0).control.pin(bytes);
  run_commands(profile_.control_register_commands, profile_.control_command_us);
}

void ControlPath::exchange_addresses() {
  enter_kernel(0);
  StartOffsets& starts = nic_.env().threads().starts;
  const Picos taken =
      to_picos(profile_.control_handshake_us * 1000.0) + starts.draw() - starts.spread / 2;
  nic_.fabric().scheduler.work(std::max<Picos>(0, taken));
}

void ControlPath::destroy_domain() noexcept { end_object(0, profile_.control_pd_commands); }

void ControlPath::destroy_queue() noexcept { end_object(0, 1); }

// The driver resets the queue pair before it destroys the queue pair.
void ControlPath::destroy_queue_pair(bool is_reset) noexcept {
  end_object(0, profile_.control_create_qp_commands + (is_reset ? 0 : 1));
}

void ControlPath::deregister_memory(std::size_t bytes) noexcept {
  end_object(profile_.control_register_us + pages(bytes) * profile_.control_register_page_us,
             profile_.control_register_commands);
}

void ControlPath::enter_kernel(double cpu_us) {
  nic_.env().charge(Cost::kSystemCall);
  nic_.fabric().scheduler.work(to_picos(cpu_us * 1000.0));
}

// Commands of several callers alternate: a caller's next command waits behind those that arrived
// meanwhile.
void ControlPath::run_commands(double count, double each_us) {
  SimScheduler& scheduler = nic_.fabric().scheduler;
  for (; count >= 1; --count) {
    scheduler.sync();
    engine_free_ = std::max(engine_free_, scheduler.clock()) + to_picos(each_us * 1000.0);
    scheduler.sleep_until(engine_free_);
  }
}

// The thread holds the lock from its own time on until its own time.
void ControlPath::pin(std::size_t bytes) {
  SimScheduler& scheduler = nic_.fabric().scheduler;
  scheduler.sync();
  const std::scoped_lock held(memory_map_);
  scheduler.work(to_picos(pages(bytes) * profile_.control_register_page_us * 1000.0));
  scheduler.sync();
}

void ControlPath::end_object(double cpu_us, double commands) noexcept {
  SimScheduler& scheduler = nic_.fabric().scheduler;
  if (!scheduler.may_run_ahead()) return;  // the node has died, or an event destroys the object
  scheduler.charge(to_picos(profile_.cpu_system_call_ns + cpu_us * 1000.0));
  if (commands < 1) return;
  engine_free_ = std::max(engine_free_, scheduler.clock()) +
                 to_picos(commands * profile_.control_command_us * 1000.0);
  scheduler.run_ahead_to(engine_free_);
}

double ControlPath::pages(std::size_t bytes) const {
  return std::max(1.0, static_cast<double>(bytes) / profile_.nic_page_bytes);
}

}  // namespace pyrdma::fabric::sim
