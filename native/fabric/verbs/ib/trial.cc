#include "fabric/verbs/ib/trial.h"

#include <algorithm>
#include <cerrno>

#include "fabric/verbs/ib/device.h"
#include "fabric/verbs/ib/memory.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr std::uint32_t kMostEntries = 1U << 22;
constexpr std::uint32_t kInlineSizes[] = {1024, 512, 256, 192, 128, 64, 32, 0};

std::uint32_t limit(int value) {
  return std::min(static_cast<std::uint32_t>(std::max(value, 0)), kMostEntries);
}

}  // namespace

ibv_qp_type type_of(Transport transport) {
  switch (transport) {
    case Transport::kUc:
      return IBV_QPT_UC;
    case Transport::kUd:
      return IBV_QPT_UD;
    default:
      return IBV_QPT_RC;
  }
}

Trial::Trial(const Library& library, ibv_context* context)
    : library_(library), domain_(library.alloc_pd(context)) {
  if (domain_ == nullptr) throw_failed("allocate a protection domain", errno);
  queue_ = library.create_cq(context, 1, nullptr, nullptr, 0);
  if (queue_ != nullptr) return;
  const int error = errno;
  library_.dealloc_pd(domain_);
  throw_failed("create a completion queue", error);
}

Trial::~Trial() {
  library_.destroy_cq(queue_);
  library_.dealloc_pd(domain_);
}

bool Trial::makes(Transport transport, std::uint32_t pieces, std::uint32_t inline_bytes) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue_;
  attributes.cap = {1, 1, pieces, 1, inline_bytes};
  attributes.qp_type = type_of(transport);
  ibv_qp* made = library_.create_qp(domain_, &attributes);
  const int error = errno;
  if (made != nullptr) library_.destroy_qp(made);
  if (made == nullptr && error == ENOMEM && !locked_memory_remedy().empty())
    throw_failed("create a queue pair", error);
  return made != nullptr;
}

void read_queue_capabilities(const ibv_device_attr& attributes, const Trial& trial,
                             Capabilities* capabilities) {
  Capabilities& c = *capabilities;
  c.rc = trial.makes(Transport::kRc, 1, 0);
  c.uc = trial.makes(Transport::kUc, 1, 0);
  c.ud = trial.makes(Transport::kUd, 1, 0);
  c.atomics = c.rc && attributes.atomic_cap != IBV_ATOMIC_NONE;
  c.srq = attributes.max_srq > 0 && attributes.max_srq_wr > 0 && attributes.max_srq_sge > 0;
  c.max_completions = limit(attributes.max_cqe);
  c.max_queue_entries = std::min(limit(attributes.max_qp_wr), c.max_completions);
  c.max_sges = limit(attributes.max_sge);
  // Some devices take fewer pieces in a read, and say 0 if they have no number for it.
  if (attributes.max_sge_rd > 0) c.max_sges = std::min(c.max_sges, limit(attributes.max_sge_rd));
  if (c.srq) {
    c.max_queue_entries = std::min(c.max_queue_entries, limit(attributes.max_srq_wr));
    c.max_sges = std::min(c.max_sges, limit(attributes.max_srq_sge));
  }
  c.max_outstanding_reads =
      std::min({limit(attributes.max_qp_rd_atom), limit(attributes.max_qp_init_rd_atom), 255U});
  const std::uint32_t pieces = std::min(QpOptions{}.max_sges, std::max(c.max_sges, 1U));
  const auto holds = [&](std::uint32_t bytes) {
    return (!c.rc || trial.makes(Transport::kRc, pieces, bytes)) &&
           (!c.uc || trial.makes(Transport::kUc, pieces, bytes)) &&
           (!c.ud || trial.makes(Transport::kUd, pieces, bytes));
  };
  c.max_inline = *std::find_if(std::begin(kInlineSizes), std::end(kInlineSizes) - 1, holds);
}

std::string lacking(const Trial& trial) {
  if (trial.makes(Transport::kRc, 1, 0)) return "";
  return "it has no reliable connections (RC), which all programs here use; an EFA, for example, "
         "has none: name a device that has them, or use fabric shm or sim";
}

}  // namespace pyrdma::fabric::verbs
