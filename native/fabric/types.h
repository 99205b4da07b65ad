// The terms of the fabric are those of verbs, in the spelling of this project.
#pragma once
#include <cstdint>
#include <limits>

namespace pyrdma::fabric {

enum class Transport : std::uint8_t { kRc, kUc, kUd, kDc };

enum class Opcode : std::uint8_t {
  kWrite,
  kWriteImm,
  kSend,
  kSendImm,
  kRead,
  kCompareSwap,      // 8 bytes, aligned; returns the old value into the local buffer
  kFetchAdd,         // 8 bytes, aligned; returns the old value into the local buffer
  kReceive,          // completions only: a send arrived
  kReceiveWriteImm,  // completions only: a write with immediate arrived
};

/// Status is the outcome of a work request. The names and meanings are those of ibv_wc_status.
enum class Status : std::uint8_t {
  kSuccess,
  kLocalLength,           // LOC_LEN_ERR
  kLocalQpOperation,      // LOC_QP_OP_ERR
  kLocalProtection,       // LOC_PROT_ERR
  kFlushed,               // WR_FLUSH_ERR
  kRemoteInvalidRequest,  // REM_INV_REQ_ERR
  kRemoteAccess,          // REM_ACCESS_ERR
  kRemoteOperation,       // REM_OP_ERR
  kRetryExceeded,         // RETRY_EXC_ERR: the peer did not answer
  kRnrRetryExceeded,      // RNR_RETRY_EXC_ERR: the peer posted no receive
  kGeneral,
};
const char* to_string(Status status);
const char* to_string(Opcode opcode);
const char* to_string(Transport transport);

enum class QpState : std::uint8_t {
  kReset,
  kInit,
  kReadyToReceive,
  kReadyToSend,
  kSendQueueError,
  kError
};
const char* to_string(QpState state);
/// Throws Error(kInvalidArgument) for a forbidden transition. Allowed are RESET to INIT to RTR to
/// RTS, SQE to RTS, any state to RESET, and any but RESET to ERROR: Linux refuses that step, though
/// InfiniBand allows it.
void check_transition(QpState from, QpState next);

/// Access rights of a memory region or queue pair, combined by or. The local CPU and local reads by
/// the NIC need none.
enum Access : std::uint32_t {
  kLocalWrite = 1,
  kRemoteWrite = 2,  // needs kLocalWrite
  kRemoteRead = 4,
  kRemoteAtomic = 8,  // needs kLocalWrite
  kRelaxedOrdering = 16,
  kOwnFile = 32,  // memory in a file of its own where there are files: MemoryRegion::file()
  kAllAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic,
};

/// Returns the rights of a region on which peers carry out `opcode`: local write, and what the
/// opcode needs.
std::uint32_t access_for(Opcode opcode);
/// Both throw Error(kInvalidArgument), naming the value and the allowed ones. A region may have any
/// right, but kRemoteWrite and kRemoteAtomic only with kLocalWrite. A queue pair may have the
/// rights of kAllAccess.
void check_region_access(std::uint32_t access);
void check_queue_pair_access(std::uint32_t access);

enum SendFlags : std::uint8_t {
  kSignaled = 1,  // produce a completion on success (errors always do)
  kInline = 2,    // copy the payload at the post: buffers are free at once, lkeys are unchecked
  kFence = 4,     // start only after all earlier reads and atomics of this queue pair
};

enum CompletionFlags : std::uint8_t {
  kHasImmediate = 1,
  kHasGrh = 2,  // UD: the first kGrhBytes of the receive buffer are the global routing header
  // UD receives in sim: a switch on the datagram's way had a long queue (ECN). The switches must
  // mark by RED: switch.ecn_kmax_bytes of the profile is not 0.
  kCongested = 4,
};

inline constexpr std::uint32_t kGrhBytes = 40;
inline constexpr std::uint32_t kInfiniteRetry = 7;  // rnr_retry: retry forever
inline constexpr std::uint32_t kNoNode = std::numeric_limits<std::uint32_t>::max();

struct Sge {
  std::uint64_t addr = 0;  // address in this process
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

class AddressHandle;

/// WorkRequest is one request of a send queue. The post copies the scatter-gather array. The
/// buffers that it names belong to the NIC until the completion, unless inline.
struct WorkRequest {
  std::uint64_t wr_id = 0;
  const Sge* sges = nullptr;
  std::uint32_t sge_count = 0;
  Opcode opcode = Opcode::kWrite;
  std::uint8_t flags = kSignaled;
  std::uint32_t immediate = 0;
  std::uint64_t remote_addr = 0;  // write, read, atomics
  std::uint32_t rkey = 0;
  std::uint32_t remote_qkey = 0;                  // UD: qkey. DC: access key
  const AddressHandle* address_handle = nullptr;  // UD and DC: the destination
  std::uint32_t remote_qpn = 0;                   // UD: queue pair. DC: target number
  std::uint64_t compare_add = 0;                  // compare value, or addend
  std::uint64_t swap = 0;
};

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  const Sge* sges = nullptr;
  std::uint32_t sge_count = 0;
};

/// A completion. With an error status only wr_id, status, qp_num and vendor_error are valid.
struct Completion {
  std::uint64_t wr_id = 0;
  Status status = Status::kSuccess;
  Opcode opcode = Opcode::kWrite;
  std::uint8_t flags = 0;
  std::uint32_t qp_num = 0;
  std::uint32_t byte_count = 0;  // receives only; UD: includes kGrhBytes
  std::uint32_t immediate = 0;
  std::uint32_t source_qpn = 0;         // UD receives
  std::uint32_t source_node = kNoNode;  // UD receives, where the fabric knows the node
  std::uint32_t vendor_error = 0;
  std::uint32_t stride = 0;  // receives of several strides: the one that the message has, from 0 on
};

/// PostError says why a post accepted fewer requests than it was given.
enum class PostError : std::uint8_t {
  kNone,
  kQueueFull,  // back-pressure: poll completions, then post the rest
  // The request at `accepted` is invalid: an opcode that the transport lacks, too many SGEs, too
  // much inline data, or an address handle of another domain.
  kInvalid,
  kInvalidState,  // the queue pair is not ready to send (or, for receives, still reset)
};
const char* to_string(PostError error);

struct PostResult {
  std::uint32_t accepted = 0;
  PostError error = PostError::kNone;
};

struct Capabilities {
  bool rc = true, uc = false, ud = false, dc = false;
  bool atomics = false, srq = false, device_memory = false, register_own_memory = false;
  std::uint32_t max_queue_entries = 0;  // of a send, receive or shared receive queue
  std::uint32_t max_completions = 0;    // of a completion queue
  std::uint32_t max_sges = 0;
  std::uint32_t max_inline = 0;             // bytes
  std::uint32_t max_outstanding_reads = 0;  // reads and atomics in flight per queue pair
  std::uint32_t max_datagram = 0;           // bytes of UD payload (the MTU)
  std::uint32_t max_receive_strides = 1;    // 1: each datagram takes a receive of its own
  std::uint64_t max_message = 0;            // bytes
  /// Gbit/s that one link of the device carries, after line coding; 0: unknown, or no link (shm).
  double link_gbps = 0;
  /// Says that a write to a word may be lost while a compare-and-swap on that word fails.
  bool swaps_lose_writes = false;
  std::uint64_t device_memory_bytes = 0;
  bool own_files = false;  // memory with kOwnFile has a file that another process can map
  /// The device may take a smaller QpOptions::timeout_us for this one. Mellanox's firmware is said
  /// to lengthen short times to about half a second on some NICs.
  std::uint32_t least_timeout_us = 0;
};

/// QpAddress holds the data that a peer needs to connect to a queue pair or to address it. Plain
/// data: it travels out of band.
struct QpAddress {
  std::uint32_t node = kNoNode;
  std::uint32_t qp_num = 0;
  std::uint32_t psn = 0;      // initial packet sequence number, random
  std::uint32_t qkey = 0;     // UD; for a DC target: its access key
  std::uint8_t gid[16] = {};  // verbs: the port's GID; elsewhere zero
  std::uint16_t lid = 0;      // verbs: the port's LID; sim: the number of the node's device
  std::uint16_t path = 0;     // verbs: path parameters that both ends must share
  // Reads and atomics of a peer that the queue pair serves at once. A peer keeps the others back.
  std::uint16_t reads = 0;
  std::uint16_t unused = 0;  // no byte is padding: equal addresses have equal bytes
};

/// RemoteRegion holds the data that a peer needs to read or write a region. Plain data.
struct RemoteRegion {
  std::uint64_t addr = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;
  std::uint32_t node = kNoNode;
};

/// Returns how many reads and atomics an RC queue pair may have in flight to `peer`: no more than
/// its own limit and the peer's. Throws Error(kInvalidArgument) for a peer that serves none.
std::uint32_t reads_in_flight(std::uint32_t own, const QpAddress& peer);

/// PathOptions choose the treatment of a connection's packets by the network. Only verbs has them:
/// sim and shm have one class of traffic, and refuse other values than 0.
struct PathOptions {
  std::uint32_t service_level = 0;  // 0..15; on Ethernet: the priority
  // 0..255; on Ethernet: the byte of the IP header that holds DSCP and ECN.
  std::uint32_t traffic_class = 0;
};

struct QpOptions {
  Transport transport = Transport::kRc;
  std::uint32_t send_entries = 128;
  std::uint32_t receive_entries = 128;  // ignored with a shared receive queue
  /// UD: datagrams that one receive takes, a power of two. Each one lands in the next equal part (a
  /// stride) of the receive's buffer, which has one piece.
  std::uint32_t receive_strides = 1;
  std::uint32_t max_sges = 4;
  std::uint32_t max_inline = 0;       // bytes
  std::uint32_t access = kAllAccess;  // rights of peers through this queue pair
  std::uint32_t qkey = 0x0205;        // UD; the access key of a DC target
  bool dc_target = false;             // DC: the responder side, which needs a shared receive queue
  /// Reads and atomics in flight that this side has to its peer, and that it serves at once. RC:
  /// the peer's own number (QpAddress::reads) bounds the first, too.
  std::uint32_t max_outstanding_reads = 16;
  std::uint32_t retry_count = 7;             // 0..7
  std::uint32_t rnr_retry = kInfiniteRetry;  // 0..7
  // The device takes the next time that it supports at or above these, its least for 0, and its
  // most beyond that.
  std::uint32_t timeout_us = 1000;  // longest wait for an answer, per attempt
  std::uint32_t rnr_timer_us = 10;  // wait imposed on a sender when no receive is posted
  std::uint32_t pkey_index = 0;     // verbs: partition, as a place in the port's table of P_Keys
  PathOptions path;                 // of RC and UC; a UD request takes that of its address handle
};

/// Throws Error for a number of strides that the device, or a queue pair with these options, cannot
/// have. `is_shared`: the queue pair has a shared receive queue.
void check_receive_strides(const QpOptions& options, const Capabilities& device, bool is_shared);
/// Both throw Error(kInvalidArgument) for another value than 0. `fabric` is one without partitions
/// and classes of traffic.
void check_no_path(const char* fabric, const PathOptions& path);
void check_no_path(const char* fabric, const QpOptions& options);

}  // namespace pyrdma::fabric
