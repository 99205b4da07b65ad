// Finds out by trying what no query tells: the kinds of queue pairs that a device makes.
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "fabric/types.h"
#include "fabric/verbs/ib/library.h"

namespace pyrdma::fabric::verbs {

ibv_qp_type type_of(Transport transport);

/// Trial makes queue pairs on an open device and destroys them at once.
class Trial {
 public:
  /// Throws Error when the device gives it no domain or no completion queue.
  Trial(const Library& library, ibv_context* context);
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  /// Returns whether the device makes a queue pair with these pieces and inline bytes for a send.
  /// Throws Error when the limit of locked memory forbids an answer.
  bool makes(Transport transport, std::uint32_t pieces, std::uint32_t inline_bytes) const;

 private:
  const Library& library_;
  ibv_pd* domain_;
  ibv_cq* queue_;
};

/// Sets what `attributes` and `trial` say about queue pairs, queues and pieces. The rates, the
/// times and the memory of the device stay as they are.
void read_queue_capabilities(const ibv_device_attr& attributes, const Trial& trial,
                             Capabilities* capabilities);

/// Returns why no device of the fabric can stand on this one; empty if one can.
std::string lacking(const Trial& trial);

}  // namespace pyrdma::fabric::verbs
