#include "systems/erpc/options.h"

#include <algorithm>

#include "base/error.h"
#include "systems/erpc/management_message.h"
#include "systems/erpc/packet_header.h"

namespace pyrdma::erpc {

namespace {

template <class T>
void check_bounds(const char* option, T value, T least, T most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("eRPC option ") + option + " = " + std::to_string(value) +
                  ": give a value from " + std::to_string(least) + " to " + std::to_string(most));
}

void check_power_of_two(const char* option, std::uint32_t value) {
  if ((value & (value - 1)) == 0) return;
  throw Error(ErrorCode::kInvalidArgument, std::string("eRPC option ") + option + " = " +
                                               std::to_string(value) + ": give a power of two");
}

}  // namespace

Options Options::of(Preset preset) {
  Options options;
  if (preset == Preset::kPublic) {
    options.max_message = 7'900'000;
    options.packet_bytes = 1024;
  }
  options.growing_timeouts = preset == Preset::kBest;
  options.adaptive_timeout = preset == Preset::kBest;
  options.unpaced_without_link = preset == Preset::kBest;
  return options;
}

Options checked(const Options& given, const fabric::Capabilities& device) {
  Options options = given;
  if (!device.ud)
    throw Error(ErrorCode::kUnavailable,
                "eRPC needs unreliable datagrams, which this device lacks");
  constexpr std::uint32_t kLeastPacket = kHeaderRoom + sizeof(ManagementMessage);
  const std::uint32_t most_packet = std::min(device.max_datagram, 4096U);
  if (options.packet_bytes == 0) options.packet_bytes = most_packet;
  check_bounds("packet_bytes", options.packet_bytes, kLeastPacket, most_packet);
  const std::uint32_t payload = options.packet_bytes - kHeaderRoom;
  if (options.preallocated_bytes == 0) options.preallocated_bytes = payload;
  check_bounds("preallocated_bytes", options.preallocated_bytes, 1U, payload);
  check_bounds("credits", options.credits, 1U, 4096U);
  check_bounds("slots", options.slots, 1U, 64U);
  check_power_of_two("slots", options.slots);
  check_bounds("backlog", options.backlog, 0U, 1U << 30U);
  check_bounds("receive_entries", options.receive_entries, options.credits, 1U << 20U);
  check_bounds("max_message", options.max_message, 1U, PacketHeader::kMaxMessage);
  // The numbers of a request's and a response's packets are in one field.
  if (options.max_message / payload + 1 > PacketHeader::kMaxPacket / 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "eRPC option max_message = " + std::to_string(options.max_message) +
                    ": packets of " + std::to_string(payload) + " bytes carry at most " +
                    std::to_string(payload * (PacketHeader::kMaxPacket / 2 - 1)) +
                    " bytes; lower it, or raise packet_bytes");
  }
  check_bounds("workers", options.workers, 0U, 64U);
  if (options.first_request) {
    check_bounds("first_request", *options.first_request, std::uint64_t{0},
                 PacketHeader::kMaxRequest);
  }
  if (options.first_generation) {
    check_bounds("first_generation", *options.first_generation, std::uint64_t{0},
                 std::uint64_t{PacketHeader::kGenerations - 1});
  }
  check_bounds("retransmission_timeout", options.retransmission_timeout, Time{1000},
               3600 * kSecond);
  check_bounds("least_timeout", options.least_timeout, Time{100}, 3600 * kSecond);
  check_bounds("failure_timeout", options.failure_timeout, Time{10'000}, 3600 * kSecond);
  check_bounds("connect_timeout", options.connect_timeout, Time{1000}, 3600 * kSecond);
  check_bounds("connect_interval", options.connect_interval, Time{1000}, 3600 * kSecond);
  check_bounds("post_batch", options.post_batch, 1U, 64U);
  check_bounds("receive_batch", options.receive_batch, 1U, 64U);
  options.inline_bytes = std::min(options.inline_bytes, device.max_inline);
  check_bounds("receive_strides", options.receive_strides, 1U, 1U << 16U);
  check_power_of_two("receive_strides", options.receive_strides);
  if (options.link_gbps == 0 && device.link_gbps > 0) options.link_gbps = device.link_gbps;
  if (options.link_gbps == 0) {
    if (options.unpaced_without_link) options.congestion_control = CongestionControl::kNone;
    options.link_gbps = 25;
  }
  check_bounds("link_gbps", options.link_gbps, 0.001, 10'000.0);
  return options;
}

}  // namespace pyrdma::erpc
