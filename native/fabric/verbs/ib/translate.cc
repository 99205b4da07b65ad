#include "fabric/verbs/ib/translate.h"

#include <array>

namespace pyrdma::fabric::verbs {

Status status_of(ibv_wc_status status, bool receive, bool soft_roce) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return Status::kSuccess;
    case IBV_WC_LOC_LEN_ERR:
      return Status::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR:
      return soft_roce && !receive ? Status::kLocalProtection : Status::kLocalQpOperation;
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_MW_BIND_ERR:
      return Status::kLocalQpOperation;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return Status::kLocalProtection;
    case IBV_WC_WR_FLUSH_ERR:
      return Status::kFlushed;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
      return Status::kRemoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR:
      return Status::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return Status::kRemoteOperation;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return Status::kRetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Status::kRnrRetryExceeded;
    default:
      return Status::kGeneral;
  }
}

QpState state_of(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return QpState::kReset;
    case IBV_QPS_INIT:
      return QpState::kInit;
    case IBV_QPS_RTR:
      return QpState::kReadyToReceive;
    case IBV_QPS_RTS:
    case IBV_QPS_SQD:
      return QpState::kReadyToSend;
    case IBV_QPS_SQE:
      return QpState::kSendQueueError;
    default:
      return QpState::kError;
  }
}

ibv_qp_state state_to(QpState state) {
  switch (state) {
    case QpState::kReset:
      return IBV_QPS_RESET;
    case QpState::kInit:
      return IBV_QPS_INIT;
    case QpState::kReadyToReceive:
      return IBV_QPS_RTR;
    case QpState::kReadyToSend:
      return IBV_QPS_RTS;
    case QpState::kSendQueueError:
      return IBV_QPS_SQE;
    case QpState::kError:
      break;
  }
  return IBV_QPS_ERR;
}

int access_to(std::uint32_t access) {
  unsigned result = 0;
  if ((access & kLocalWrite) != 0) result |= IBV_ACCESS_LOCAL_WRITE;
  if ((access & kRemoteWrite) != 0) result |= IBV_ACCESS_REMOTE_WRITE;
  if ((access & kRemoteRead) != 0) result |= IBV_ACCESS_REMOTE_READ;
  if ((access & kRemoteAtomic) != 0) result |= IBV_ACCESS_REMOTE_ATOMIC;
  return static_cast<int>(result);
}

ibv_wr_opcode opcode_to(Opcode opcode) {
  switch (opcode) {
    case Opcode::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Opcode::kWriteImm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Opcode::kSend:
      return IBV_WR_SEND;
    case Opcode::kSendImm:
      return IBV_WR_SEND_WITH_IMM;
    case Opcode::kRead:
      return IBV_WR_RDMA_READ;
    case Opcode::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case Opcode::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default:
      return IBV_WR_SEND;  // is_postable() refuses all others
  }
}

void set_path(ibv_ah_attr& route, const PathOptions& path) {
  route.sl = static_cast<std::uint8_t>(path.service_level);
  route.grh.traffic_class = static_cast<std::uint8_t>(path.traffic_class);
  if (path.traffic_class != 0) route.is_global = 1;
}

std::uint32_t bytes_of(ibv_mtu mtu) { return mtu < IBV_MTU_256 ? 256 : 128U << mtu; }

double link_gbps_of(std::uint8_t width, std::uint8_t speed, bool ethernet) {
  const auto lanes = [&] {
    switch (width) {
      case 1:
        return 1;
      case 2:
        return 4;
      case 4:
        return 8;
      case 8:
        return 12;
      case 16:
        return 2;
      default:
        return 0;
    }
  };
  const auto lane = [&] {
    switch (speed) {
      case 1:  // SDR
        return ethernet ? 2.5 : 2.0;
      case 2:  // DDR
        return ethernet ? 5.0 : 4.0;
      case 4:  // QDR: 10 Gbaud, 8 of 10 bits are data on InfiniBand
        return ethernet ? 10.0 : 8.0;
      case 8:  // FDR10
        return 10.0;
      case 16:  // FDR: 14.0625 Gbaud, 64 of 66 bits are data
        return ethernet ? 14.0 : 14.0625 * 64 / 66;
      case 32:  // EDR
        return 25.0;
      case 64:  // HDR
        return 50.0;
      case 128:  // NDR
        return 100.0;
      default:
        return 0.0;
    }
  };
  return lanes() * lane();
}

std::uint8_t timeout_exponent(std::uint32_t microseconds) {
  std::uint8_t exponent = 1;  // 0 would wait forever
  while (exponent < 31 && (4096ULL << exponent) < std::uint64_t{microseconds} * 1000) ++exponent;
  return exponent;
}

std::uint8_t rnr_timer_code(std::uint32_t microseconds) {
  // The table gives the microseconds of codes 1 to 31; code 0 is the longest time.
  static constexpr std::array<std::uint32_t, 31> kTimes = {
      10,    20,    30,    40,    60,     80,     120,    160,    240,   320,   480,
      640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360, 20480,
      30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  for (std::size_t i = 0; i < kTimes.size(); ++i) {
    if (kTimes[i] >= microseconds) return static_cast<std::uint8_t>(i + 1);
  }
  return 0;
}

}  // namespace pyrdma::fabric::verbs
