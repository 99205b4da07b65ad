// The cost of opening, creating, modifying, destroying and registering. Each call enters the
// kernel. Its time has three parts, and each part runs beside other calls in its own way:
//   - CPU time of the library and of the kernel, on the caller's core;
//   - pinning of pages, one call of a node at a time: the kernel locks the memory map;
//   - commands to the firmware of the NIC, one of the NIC at a time, in the order of arrival.
// The driver decides how many commands a call takes. README.md has the counts and the calibration.
#pragma once
#include <cstddef>

#include "env/sim/event_queue.h"
#include "env/sync.h"

namespace pyrdma::fabric::sim {

class Nic;
struct SimProfile;

class ControlPath {
 public:
  explicit ControlPath(Nic& nic);

  // These calls block the caller until the object is ready.
  void open();
  void create_domain();
  void create_queue();  // a completion queue, or a shared receive queue
  void create_queue_pair();
  void modify();
  void register_memory(std::size_t bytes);
  /// Blocks the caller for an exchange of addresses with a peer, outside of the NIC.
  void exchange_addresses();

  // Destructors use these calls. The caller's clock runs ahead to the end of the call. So the calls
  // never throw, and no other thread runs in the middle of a destructor.
  void destroy_domain() noexcept;
  void destroy_queue() noexcept;
  void destroy_queue_pair(bool is_reset) noexcept;
  void deregister_memory(std::size_t bytes) noexcept;

 private:
  void enter_kernel(double cpu_us);
  void run_commands(double count, double each_us);
  void pin(std::size_t bytes);
  void end_object(double cpu_us, double commands) noexcept;
  double pages(std::size_t bytes) const;

  Nic& nic_;
  const SimProfile& profile_;
  Mutex memory_map_;       // of the node; the node's first NIC has the one in use
  Picos engine_free_ = 0;  // the firmware
};

}  // namespace pyrdma::fabric::sim
