// The life of an endpoint.
#include "systems/erpc/endpoint.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint64_t kPageBytes = 256 * kKiB;
constexpr Time kWheelSlot = 500;  // ns; the public program's

// The longest time that a packet waits in the wheel: all packets of a session at the least rate.
Time wheel_horizon(const Options& options) {
  const double bytes = static_cast<double>(options.credits) * options.packet_bytes;
  return static_cast<Time>(bytes / RateControl::bounds_of(options).least) + kWheelSlot;
}

}  // namespace

Endpoint::Endpoint(Env& env, const Options& options, std::uint32_t number, Bugs bugs)
    : env_(env),
      options_([&] {
        env.device().open();
        return checked(options, env.device().capabilities());
      }()),
      number_(number),
      payload_(options_.packet_bytes - kHeaderRoom),
      small_(std::min(payload_, options_.max_message)),
      bugs_(bugs),
      last_request_(bugs.has(Bug::kNumbersRunOut) ? ~std::uint64_t{0} : PacketHeader::kMaxRequest),
      pd_(env.device().create_protection_domain()),
      memory_(env, *pd_, kPageBytes),
      buffers_(env, memory_, payload_, options_.max_message, false),
      worker_buffers_(env, memory_, payload_, options_.max_message, true),
      transport_(env, *pd_, memory_, options_),
      rng_(env.rng("erpc/" + options_.name + '/' + std::to_string(number))),
      wheel_(kWheelSlot, wheel_horizon(options_), env.now()) {
  clock_ = env_.now();
  scan_at_ = manage_at_ = clock_;
  if (options_.workers != 0) workers_ = std::make_unique<Workers>(*this, options_.workers);
  // Endpoints of the same number in one process draw from equal streams.
  incarnation_ = publish_address();
  token_ = mix64(rng_() ^ mix64(incarnation_)) | 1U;
  // Packets for earlier endpoints may arrive at this one, which may have the same queue pair
  // number. None of the last 15 has used these generations, unless one place had more than 256
  // sessions.
  const std::uint64_t first =
      options_.first_generation.value_or(mix64(std::uint64_t{env_.node()} << 32U | number_));
  first_generation_ = static_cast<std::uint32_t>((first + std::uint64_t{incarnation_} * 257) %
                                                 PacketHeader::kGenerations);
  sessions_made_ = options_.sessions_before;
}

void Endpoint::close(bool says_so) {
  if (is_closed_) return;
  is_closed_ = true;
  // Peers need not wait for silence. A lost message leaves them waiting.
  for (const auto& session : clients_) {
    if (says_so && session->state == SessionState::kConnected)
      send_management(session->to, about(*session, ManagementKind::kDisconnect));
  }
  for (const auto& session : servers_) {
    if (says_so && session->state == SessionState::kConnected)
      send_management(session->to, about(*session, ManagementKind::kReset));
  }
  if (workers_ != nullptr) workers_->stop();
  transport_.drain();
  for (const auto& session : clients_) {
    if (session->state != SessionState::kFree && session->state != SessionState::kDisconnecting)
      lose_session(*session, "the endpoint was closed");
  }
  call_failed();
}

// A destructor must neither wait nor call what may wait: its node may be killed meanwhile.
Endpoint::~Endpoint() {
  if (workers_ != nullptr) workers_->stop();
  transport_.abandon();
}

void Endpoint::register_handler(std::uint8_t type, Handler handler, RunIn where) {
  TypeEntry& entry = handlers_[type];
  if (entry.handler != nullptr || handler == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "register_handler for type " + std::to_string(type) +
                    (handler == nullptr ? ": give a function"
                                        : ": the type has a handler; use another type"));
  }
  if (where == RunIn::kWorker && workers_ == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "register_handler for type " + std::to_string(type) +
                    ": the endpoint has no worker thread; set the option workers to 1 or more");
  }
  entry = {std::move(handler), where, where == RunIn::kDispatch && options_.zero_copy_receive};
}

std::uint64_t Endpoint::memory_per_session() const {
  return sizeof(ClientSession) + options_.slots * sizeof(ClientSlot) + sizeof(ServerSession) +
         options_.slots * (sizeof(ServerSlot) + sizeof(MsgBuffer) + kCacheLine +
                           std::bit_ceil(options_.preallocated_bytes));
}

}  // namespace pyrdma::erpc
