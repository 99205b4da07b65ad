// What the two ends of messages share: the data on the wire, registered slots, and the datagrams by
// which a peer asks for its connection.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "fabric/sender.h"
#include "runtime/memory_pool.h"

namespace pyrdma::runtime::messages {

/// Before each request and reply.
struct Header {
  std::uint64_t id;  // 0: without a reply
};

// The ids of a peer's calls say which calls have been given up. A peer has kWindow slots for calls,
// and a call keeps its slot until it ends. So the next call of the slot says that the one before
// has ended: if its reply has not been sent, nobody waits for it.
inline constexpr std::uint32_t kWindow = 16;
inline std::uint64_t id_of(std::uint64_t call, std::uint64_t slot) { return call * kWindow + slot; }
inline std::size_t slot_of(std::uint64_t id) { return id % kWindow; }

struct ConnectRequest {
  static constexpr std::uint64_t kMark = 0x7079'6173'6b3a'6e31;
  std::uint64_t mark = kMark;
  std::uint32_t node = 0;
  std::uint32_t incarnation = 0;
  fabric::QpAddress connection;  // of the peer
  fabric::QpAddress datagrams;
};

struct ConnectReply {
  static constexpr std::uint64_t kMark = 0x7079'7265'703a'6e31;
  std::uint64_t mark = kMark;
  std::uint32_t asked = 0;  // number of the peer's queue pair
  std::uint32_t max_bytes = 0;
  fabric::QpAddress connection;  // of the inbox
};

/// What the rendezvous has about an inbox.
struct Address {
  fabric::QpAddress datagrams;
};
inline constexpr std::uint8_t kNeverBound = 0;  // in its place: an incarnation without the inbox

inline constexpr std::uint32_t kDatagramBytes = fabric::kGrhBytes + 256;
inline constexpr std::uint32_t kInlineBytes = 64;
inline constexpr std::uint64_t kDatagram = std::uint64_t{1} << 62;  // wr_ids of datagrams
inline constexpr std::uint64_t kSend = std::uint64_t{1} << 61;      // wr_ids of sends

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
std::optional<T> read(const std::string& bytes) {
  T value;
  if (bytes.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data(), sizeof value);
  if (value.mark != T::kMark) return std::nullopt;
  return value;
}

/// Registered slots of one size.
struct Slots {
  Slots(MemoryPool& memory, std::uint32_t count, std::uint32_t bytes)
      : slot_bytes(bytes), region(memory.allocate(std::uint64_t{count} * bytes)) {}
  std::byte* at(std::uint64_t slot) const { return region.data + slot * slot_bytes; }
  fabric::Sge sge(std::uint64_t slot, std::uint32_t length) const {
    return region.sge(slot * slot_bytes, length);
  }
  std::uint32_t slot_bytes;
  LocalRegion region;
};

/// A datagram that has come.
struct Datagram {
  std::string bytes;  // none if the receive has failed
  fabric::Completion completion;
  std::array<std::byte, fabric::kGrhBytes> header{};
  bool is_from(const fabric::QpAddress& address) const {
    return fabric::is_from(completion, header.data(), address);
  }
};

/// The queue pair for datagrams by which connections are asked for, with its receives.
class Datagrams {
 public:
  static constexpr std::uint32_t kEntries = 32;
  Datagrams(Env& env, fabric::ProtectionDomain& domain, fabric::CompletionQueue& completions,
            MemoryPool& memory);
  fabric::QpAddress address() const { return qp_->address(); }
  /// Sends plain data; drops it when the queue is full, as a network may, and when the device
  /// refuses the address.
  void send(const fabric::QpAddress& to, std::string_view bytes);
  /// Returns what a receive has got.
  Datagram take(const fabric::Completion& completion);
  /// Posts the receives that are free. Returns false if some stay so: the queue takes none now, or
  /// has failed. Never waits.
  bool post_receives();
  /// Connects the queue pair anew if it has failed, as when its device has. It keeps its address.
  void recover();

 private:
  Env& env_;
  fabric::ProtectionDomain& domain_;
  Slots receives_, sends_;
  std::uint64_t next_send_ = 0;
  std::vector<std::uint64_t> free_;  // receives that are not posted
  std::unique_ptr<fabric::QueuePair> qp_;
  // Of the last sends: an address handle outlives the requests that name it, and so do the bytes.
  // One more than can be under way, so that a send that is refused changes none of them.
  static constexpr std::uint64_t kSends = kEntries + 1;
  std::array<std::unique_ptr<fabric::AddressHandle>, kSends> handles_;
};
/// The name of an inbox in the rendezvous.
std::string address_key(const std::string& name, NodeId node, std::uint32_t incarnation);
/// Options of a connection with `entries` sends and receives.
fabric::QpOptions connection_options(const fabric::Capabilities& can, std::uint32_t entries);
/// Posts a message from `slot`: header, then data. Its completion has kSend and `number`. Returns
/// false if the queue is full.
bool post_message(Env& env, fabric::QueuePair& qp, const Slots& slots, std::uint64_t slot,
                  std::uint64_t number, std::uint64_t id, std::string_view data,
                  std::uint32_t max_inline);
/// Copies what follows the header to `data`; returns nothing for a message without a header.
std::optional<Header> read_message(Env& env, const Slots& slots, std::uint64_t slot,
                                   std::uint32_t length, std::string& data);
/// After this time a post that a queue has refused is tried again.
inline constexpr Time kRetry = 10 * kMicrosecond;
/// Throws Error(kUnavailable) if the device lacks what messages need.
void need(const fabric::Device& device);
/// Throws Error(kInvalidArgument) for data longer than `max_bytes`; `what` is the data.
void check_length(std::string_view data, std::uint32_t max_bytes, const char* what);

}  // namespace pyrdma::runtime::messages
