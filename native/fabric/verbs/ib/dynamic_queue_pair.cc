#include "fabric/verbs/ib/dynamic_queue_pair.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "fabric/post_rules.h"
#include "fabric/verbs/ib/completion_queue.h"
#include "fabric/verbs/ib/shared_receive_queue.h"
#include "fabric/verbs/ib/translate.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr std::uint32_t kMostPieces = 32;
constexpr std::uint64_t kOperations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

ibv_qp* make_initiator(const Mlx5Library& mlx5, ibv_context* context, ibv_pd* pd, ibv_cq* sends,
                       ibv_cq* receives, const QpOptions& options) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_DRIVER;
  attributes.send_cq = sends;
  attributes.recv_cq = receives;
  attributes.pd = pd;
  attributes.cap.max_send_wr = options.send_entries;
  attributes.cap.max_send_sge = options.max_sges;
  attributes.cap.max_inline_data = options.max_inline;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.send_ops_flags = kOperations;
  mlx5dv_qp_init_attr more{};
  more.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  return mlx5.create_qp(context, &attributes, &more);
}

ibv_qp* make_target(const Mlx5Library& mlx5, ibv_context* context, ibv_pd* pd, ibv_cq* sends,
                    ibv_cq* receives, ibv_srq* shared, std::uint32_t key) {
  ibv_qp_init_attr_ex attributes{};
  attributes.qp_type = IBV_QPT_DRIVER;
  attributes.send_cq = sends;
  attributes.recv_cq = receives;
  attributes.pd = pd;
  attributes.srq = shared;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  mlx5dv_qp_init_attr more{};
  more.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  more.dc_init_attr.dct_access_key = key;
  return mlx5.create_qp(context, &attributes, &more);
}

}  // namespace

bool has_dynamic_transport(ibv_context* context) {
  const Mlx5Library* mlx5 = Mlx5Library::get();
  if (mlx5 == nullptr || !mlx5->is_supported(context->device)) return false;
  const Library& ib = Library::get();
  const VerbsDomain domain(context);
  ibv_cq* cq = ib.create_cq(context, 1, nullptr, nullptr, 0);
  if (cq == nullptr) return false;
  ibv_qp* qp = make_initiator(*mlx5, context, domain.pd(), cq, cq, QpOptions{});
  if (qp != nullptr) ib.destroy_qp(qp);
  ib.destroy_cq(cq);
  return qp != nullptr;
}

VerbsDynamicQueuePair::VerbsDynamicQueuePair(VerbsDevice& device, VerbsDomain& domain,
                                             VerbsCompletionQueue& send_queue,
                                             VerbsCompletionQueue& receive_queue,
                                             const QpOptions& options,
                                             VerbsSharedReceiveQueue* shared)
    : device_(device),
      domain_(domain.share()),
      options_(options),
      allowed_(options.dc_target               ? 0
               : device.capabilities().atomics ? allowed_opcodes(Transport::kDc)
                                               : allowed_opcodes(Transport::kDc) & ~kAtomics),
      shared_completions_(receive_queue),
      record_(device.records().take(options.dc_target ? 0 : options.send_entries, 0)) {
  record_.datagram = false;
  // Capabilities::dc says that the library is present.
  const Mlx5Library& mlx5 = *Mlx5Library::get();
  options_.max_sges = std::min(options.max_sges, kMostPieces);
  qp_ = options.dc_target ? make_target(mlx5, device.context(), domain.pd(), send_queue.cq(),
                                        receive_queue.cq(), shared->srq(), options.qkey)
                          : make_initiator(mlx5, device.context(), domain.pd(), send_queue.cq(),
                                           receive_queue.cq(), options_);
  if (qp_ == nullptr) {
    const int error = errno;
    device_.records().give_back(record_);
    throw_failed(options.dc_target ? "create a DC target" : "create a DC initiator", error);
  }
  if (!options.dc_target) {
    extended_ = mlx5.extended_of(qp_);
    dynamic_ = mlx5.dynamic_of(extended_);
  }
  device_.add(*this);
}

VerbsDynamicQueuePair::~VerbsDynamicQueuePair() {
  device_.remove(*this);
  if (options_.dc_target)
    end_target();
  else
    Library::get().destroy_qp(qp_);
  device_.records().give_back(record_);
}

QpState VerbsDynamicQueuePair::state() const {
  const QpState known = state_.load(std::memory_order_relaxed);
  if (options_.dc_target || known != QpState::kReadyToSend) return known;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr unused{};
  const int failure = Library::get().query_qp(qp_, &attributes, IBV_QP_STATE, &unused);
  if (failure != 0) throw_failed("query a DC initiator", failure);
  return state_of(attributes.qp_state);
}

QpAddress VerbsDynamicQueuePair::address() const {
  if (options_.dc_target && state_.load(std::memory_order_relaxed) != QpState::kReadyToReceive &&
      state_.load(std::memory_order_relaxed) != QpState::kReadyToSend) {
    throw Error(ErrorCode::kInvalidArgument,
                "a DC target has a number only while it is ready to receive; connect() it first");
  }
  QpAddress address = device_.address();
  address.qp_num = qp_->qp_num;
  address.qkey = options_.qkey;
  address.reads = static_cast<std::uint16_t>(options_.max_outstanding_reads);
  return address;
}

void VerbsDynamicQueuePair::change(ibv_qp_attr& attributes, unsigned mask) {
  const int failure = Library::get().modify_qp(qp_, &attributes, static_cast<int>(mask));
  if (failure == 0) return;
  throw_failed(std::string("bring a DC ") + (options_.dc_target ? "target" : "initiator") + " to " +
                   to_string(state_of(attributes.qp_state)),
               failure);
}

// The attributes are those of mlx5dv_create_qp(3). A target has no state after ready to receive, so
// connect()'s transition to ready to send does nothing for it.
void VerbsDynamicQueuePair::modify(QpState next, const QpAddress* /*peer*/) {
  check_transition(state(), next);
  const bool target = options_.dc_target;
  if (target && next == QpState::kError) {
    end_target();
    return;
  }
  if (qp_ == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                "verbs: a stopped DC target cannot start again; make a new one");
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = state_to(next);
  unsigned mask = IBV_QP_STATE;
  if (next == QpState::kInit) {
    attributes.port_num = device_.port();
    attributes.pkey_index = static_cast<std::uint16_t>(options_.pkey_index);
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (target) {
      attributes.qp_access_flags = static_cast<unsigned>(device_.rights_of(options_.access));
      mask |= IBV_QP_ACCESS_FLAGS;
    }
  } else if (next == QpState::kReadyToReceive) {
    attributes.path_mtu = device_.mtu();
    attributes.ah_attr = device_.route_to(device_.address(), options_.path);
    mask |= IBV_QP_PATH_MTU | IBV_QP_AV;
    if (target) {
      attributes.min_rnr_timer = rnr_timer_code(options_.rnr_timer_us);
      mask |= IBV_QP_MIN_RNR_TIMER;
    }
  } else if (next == QpState::kReadyToSend) {
    attributes.timeout = timeout_exponent(options_.timeout_us);
    attributes.retry_cnt = static_cast<std::uint8_t>(options_.retry_count);
    attributes.rnr_retry = static_cast<std::uint8_t>(options_.rnr_retry);
    attributes.max_rd_atomic = static_cast<std::uint8_t>(options_.max_outstanding_reads);
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
            IBV_QP_MAX_QP_RD_ATOMIC;
  }
  if (!target || next != QpState::kReadyToSend) change(attributes, mask);
  if (next == QpState::kReset) {
    record_.forget();
    record_.sends_done.store(sent_, std::memory_order_release);
  }
  state_.store(next, std::memory_order_release);
}

// The kernel has no transition of a target to ERROR or RESET, so this function destroys it.
void VerbsDynamicQueuePair::end_target() {
  if (qp_ != nullptr) {
    shared_completions_.take_in(qp_->qp_num);
    Library::get().destroy_qp(std::exchange(qp_, nullptr));
  }
  state_.store(QpState::kError, std::memory_order_release);
}

void VerbsDynamicQueuePair::silence() {
  if (options_.dc_target) {
    end_target();
    return;
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (Library::get().modify_qp(qp_, &attributes, IBV_QP_STATE) == 0)
    state_.store(QpState::kError, std::memory_order_release);
}

// ---- data path ----

void VerbsDynamicQueuePair::start(const WorkRequest& request) {
  ibv_qp_ex* qp = extended_;
  // The setter adds the flag.
  qp->wr_flags = send_flags_to(request.flags) & ~unsigned{IBV_SEND_INLINE};
  switch (request.opcode) {
    case Opcode::kWrite:
      ibv_wr_rdma_write(qp, request.rkey, request.remote_addr);
      break;
    case Opcode::kWriteImm:
      ibv_wr_rdma_write_imm(qp, request.rkey, request.remote_addr, htobe32(request.immediate));
      break;
    case Opcode::kRead:
      ibv_wr_rdma_read(qp, request.rkey, request.remote_addr);
      break;
    case Opcode::kCompareSwap:
      ibv_wr_atomic_cmp_swp(qp, request.rkey, request.remote_addr, request.compare_add,
                            request.swap);
      break;
    case Opcode::kFetchAdd:
      ibv_wr_atomic_fetch_add(qp, request.rkey, request.remote_addr, request.compare_add);
      break;
    case Opcode::kSendImm:
      ibv_wr_send_imm(qp, htobe32(request.immediate));
      break;
    default:
      ibv_wr_send(qp);  // is_postable() refuses all others
  }
  mlx5dv_wr_set_dc_addr(dynamic_,
                        static_cast<const VerbsAddressHandle*>(request.address_handle)->handle(),
                        request.remote_qpn, request.remote_qkey);
  if ((request.flags & kInline) == 0) {
    ibv_wr_set_sge_list(qp, request.sge_count, pieces(request.sges));
    return;
  }
  std::array<ibv_data_buf, kMostPieces> buffers;
  for (std::uint32_t i = 0; i < request.sge_count; ++i)
    buffers[i] = {reinterpret_cast<void*>(request.sges[i].addr), request.sges[i].length};
  ibv_wr_set_inline_data_list(qp, request.sge_count, buffers.data());
}

PostResult VerbsDynamicQueuePair::post(std::span<const WorkRequest> requests) {
  if (options_.dc_target) return {0, PostError::kInvalid};
  if (state_.load(std::memory_order_relaxed) < QpState::kReadyToSend)
    return {0, PostError::kInvalidState};
  const std::uint32_t used = sent_ - record_.sends_done.load(std::memory_order_acquire);
  const std::size_t room = options_.send_entries - std::min(used, options_.send_entries);
  PostError error = PostError::kNone;
  std::uint32_t count = 0;
  ibv_wr_start(extended_);
  for (const WorkRequest& request : requests) {
    if (count == room) error = PostError::kQueueFull;
    if (!is_postable(request, options_, allowed_) ||
        static_cast<const VerbsAddressHandle*>(request.address_handle)->handle()->pd != qp_->pd)
      error = PostError::kInvalid;
    if (error != PostError::kNone) break;
    const std::uint32_t position = sent_ + count++;
    record_.sends[position & record_.send_mask] = {request.wr_id, request.opcode};
    extended_->wr_id = Ticket{false, false, record_.generation.load(std::memory_order_relaxed),
                              record_.slot, position}
                           .packed();
    start(request);
  }
  const int failure = ibv_wr_complete(extended_);
  if (failure != 0)  // then the device took none of them
    return {0, failure == ENOMEM ? PostError::kQueueFull : PostError::kInvalid};
  sent_ += count;
  return {count, error};
}

PostResult VerbsDynamicQueuePair::post_receive(std::span<const ReceiveRequest> /*requests*/) {
  // Targets take from the shared receive queue; initiators receive nothing.
  return {0, PostError::kInvalid};
}

}  // namespace pyrdma::fabric::verbs
