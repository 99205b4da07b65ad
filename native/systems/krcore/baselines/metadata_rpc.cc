#include "systems/krcore/baselines/metadata_rpc.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "base/checksum.h"
#include "env/scope.h"
#include "fabric/sender.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint32_t kMetadataSlot = 128;  // bytes of a buffer
static_assert(sizeof(MetadataRequest) + fabric::kGrhBytes <= kMetadataSlot);
constexpr std::uint32_t kServerReceives = 4096, kServerSends = 256;
constexpr std::uint32_t kSilentAnswers = kServerSends / 4;  // share a completion
constexpr std::size_t kRound = 32;                          // requests that share a doorbell
constexpr std::uint32_t kClientReceives = 8, kClientSends = 8;
constexpr Time kMetadataStop = 5 * kMillisecond;
constexpr Time kFirstAnswer = kMillisecond;  // then the client asks again
constexpr int kMetadataAttempts = 6;         // each waits twice as long
constexpr Time kServerRests = kSecond;       // that has answered none of them

template <class T>
std::uint32_t sum_of_metadata(const T& message) {
  return static_cast<std::uint32_t>(
      checksum(std::as_bytes(std::span(&message, 1)).first(offsetof(T, sum))));
}

fabric::QpOptions metadata_options(std::uint32_t sends, std::uint32_t receives,
                                   std::uint32_t max_inline) {
  fabric::QpOptions options;
  options.transport = fabric::Transport::kUd;
  options.send_entries = sends;
  options.receive_entries = receives;
  options.max_sges = 1;
  options.max_inline = max_inline;
  return options;
}

/// Bytes that the device takes inline, of a message of `bytes`: all or none.
std::uint32_t inline_bytes(Env& env, std::size_t bytes) {
  return env.device().capabilities().max_inline >= bytes ? static_cast<std::uint32_t>(bytes) : 0;
}

}  // namespace

template <class T>
std::optional<T> parse_metadata(const std::byte* at, std::size_t bytes) {
  T message;
  if (bytes != sizeof message) return std::nullopt;
  std::memcpy(&message, at, sizeof message);
  if (message.magic != T::kMagic || message.sum != sum_of_metadata(message)) return std::nullopt;
  return message;
}

template <class T>
void seal_metadata(T& message) {
  message.sum = sum_of_metadata(message);
}

template std::optional<MetadataRequest> parse_metadata<MetadataRequest>(const std::byte*,
                                                                        std::size_t);
template std::optional<MetadataResponse> parse_metadata<MetadataResponse>(const std::byte*,
                                                                          std::size_t);
template void seal_metadata<MetadataRequest>(MetadataRequest&);
template void seal_metadata<MetadataResponse>(MetadataResponse&);

MetadataServer::MetadataServer(Env& env, fabric::ProtectionDomain& domain, const MetaServer& tables,
                               Mutex& mutex, Failure& failure)
    : env_(env), domain_(domain), tables_(tables), mutex_(mutex), handles_(env.nodes()) {
  fabric::Device& device = env.device();
  receive_entries_ = std::min({kServerReceives, device.capabilities().max_queue_entries,
                               device.capabilities().max_completions});
  max_inline_ = inline_bytes(env, sizeof(MetadataResponse));
  memory_ = device.allocate(domain, std::size_t{receive_entries_ + kServerSends} * kMetadataSlot);
  receives_ = device.create_completion_queue(receive_entries_);
  sends_ = device.create_completion_queue(kServerSends);
  qp_ = device.create_queue_pair(domain, *sends_, *receives_,
                                 metadata_options(kServerSends, receive_entries_, max_inline_));
  for (std::uint32_t slot = 0; slot < receive_entries_; ++slot)
    receive_pieces_.push_back(memory_->sge(std::size_t{slot} * kMetadataSlot, kMetadataSlot));
  for (std::uint32_t slot = 0; slot < receive_entries_; ++slot)
    to_receive_.push_back({slot, &receive_pieces_[slot], 1});
  begin();
  pieces_.resize(kServerSends);
  address_ = qp_->address();
  thread_ = failure.spawn("krcore-metadata", [this] { run(); });
}

MetadataServer::~MetadataServer() {
  stops_.store(true, std::memory_order_release);
  thread_.reset();
}

void MetadataServer::begin() {
  qp_->connect({});
  qp_->post_receive(to_receive_);
  to_receive_.clear();
  freed_ = queued_;
}

// A queue pair that fails, as by a datagram that is too long, begins anew at the same address when
// all its receives have ended.
void MetadataServer::receive_again() {
  if (qp_->state() == fabric::QpState::kError) {
    if (to_receive_.size() < receive_entries_) return;
    env_.reached("krcore/metadata_anew");
    qp_->modify(fabric::QpState::kReset);
    return begin();
  }
  if (to_receive_.size() < kRound / 2) return;
  qp_->post_receive(to_receive_);
  to_receive_.clear();
}

void MetadataServer::run() {
  while (!stops_.load(std::memory_order_acquire)) {
    env_.poll_until([this] { return round() != 0; }, env_.now() + kMetadataStop,
                    &receives_->watch());
  }
}

// Takes what has come, and answers all of it with one doorbell.
std::size_t MetadataServer::round() {
  const Scope step(env_, scope::metadata_round);
  std::array<fabric::Completion, kRound> arrived;
  const std::size_t count = receives_->poll(arrived);
  for (const fabric::Completion& wc : std::span(arrived).first(count)) {
    to_receive_.push_back({wc.wr_id, &receive_pieces_[wc.wr_id], 1});
    if (wc.status != fabric::Status::kSuccess || wc.byte_count < fabric::kGrhBytes) continue;
    const std::byte* datagram = memory_->data() + wc.wr_id * kMetadataSlot;
    const auto request = parse_metadata<MetadataRequest>(datagram + fabric::kGrhBytes,
                                                         wc.byte_count - fabric::kGrhBytes);
    if (request && request->from.node < handles_.size() &&
        fabric::is_from(wc, datagram, request->from))
      attempt(env_, [&] { answer(*request); });
  }
  post_answers();
  receive_again();
  return count;
}

// A request that finds no room is as good as lost.
bool MetadataServer::answer(const MetadataRequest& request) {
  const Scope step(env_, scope::metadata_request);
  if (queued_ - freed_ == kServerSends) reap();
  if (queued_ - freed_ == kServerSends) return false;
  MetadataResponse response;
  response.ticket = request.ticket;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    response.is_known = tables_.find_target(request.about, response.meta) ? 1 : 0;
  }
  seal_metadata(response);
  const std::size_t slot = queued_++ % kServerSends;
  const std::size_t at = (receive_entries_ + slot) * kMetadataSlot;
  std::memcpy(memory_->data() + at, &response, sizeof response);
  pieces_[slot] = memory_->sge(at, sizeof response);
  fabric::WorkRequest work;
  work.wr_id = queued_;
  work.sges = &pieces_[slot];
  work.sge_count = 1;
  work.opcode = fabric::Opcode::kSend;
  work.flags = queued_ % kSilentAnswers == 0 ? fabric::kSignaled : 0;
  if (max_inline_ != 0) work.flags |= fabric::kInline;
  work.address_handle = handle_of(request.from);
  work.remote_qpn = request.from.qp_num;
  work.remote_qkey = request.from.qkey;
  answers_.push_back(work);
  return true;
}

void MetadataServer::post_answers() {
  if (answers_.empty()) return;
  if (qp_->state() == fabric::QpState::kSendQueueError) qp_->modify(fabric::QpState::kReadyToSend);
  qp_->post(answers_);
  answers_.clear();
}

void MetadataServer::reap() {
  std::array<fabric::Completion, 4> ended;
  const std::size_t count = sends_->poll(ended);
  for (const fabric::Completion& wc : std::span(ended).first(count)) freed_ = wc.wr_id;
}

const fabric::AddressHandle* MetadataServer::handle_of(const fabric::QpAddress& client) {
  auto& handle = handles_[client.node];
  if (handle == nullptr) handle = env_.device().create_address_handle(domain_, client);
  return handle.get();
}

MetadataClient::MetadataClient(Env& env, fabric::ProtectionDomain& domain)
    : env_(env), domain_(domain), mutex_(env) {
  fabric::Device& device = env.device();
  max_inline_ = inline_bytes(env, sizeof(MetadataRequest));
  memory_ = device.allocate(domain, std::size_t{kClientReceives + kClientSends} * kMetadataSlot);
  receives_ = device.create_completion_queue(kClientReceives);
  sends_ = device.create_completion_queue(kClientSends);
  qp_ = device.create_queue_pair(domain, *sends_, *receives_,
                                 metadata_options(kClientSends, kClientReceives, max_inline_));
  begin();
}

void MetadataClient::begin() {
  qp_->connect({});
  ended_receives_ = 0;
  for (std::uint32_t slot = 0; slot < kClientReceives; ++slot)
    qp_->receive(memory_->sge(std::size_t{slot} * kMetadataSlot, kMetadataSlot), slot);
}

void MetadataClient::use(const fabric::QpAddress& server) {
  const std::lock_guard<Mutex> lock(mutex_);
  handle_ = env_.device().create_address_handle(domain_, server);
  server_ = server;
}

// Every send has a completion: a client has one request under way.
void MetadataClient::ask(NodeId node) {
  std::array<fabric::Completion, kClientSends> ended;
  sends_->poll(ended);
  if (qp_->state() == fabric::QpState::kSendQueueError) qp_->modify(fabric::QpState::kReadyToSend);
  MetadataRequest request;
  request.about = node;
  request.ticket = ticket_;
  request.from = qp_->address();
  seal_metadata(request);
  const std::size_t at = (kClientReceives + requests_ % kClientSends) * kMetadataSlot;
  std::memcpy(memory_->data() + at, &request, sizeof request);
  const fabric::Sge sge = memory_->sge(at, sizeof request);
  fabric::WorkRequest work;
  work.sges = &sge;
  work.sge_count = 1;
  work.opcode = fabric::Opcode::kSend;
  if (max_inline_ != 0) work.flags |= fabric::kInline;
  work.address_handle = handle_.get();
  work.remote_qpn = server_.qp_num;
  work.remote_qkey = server_.qkey;
  ++requests_;
  qp_->post({&work, 1});
}

std::optional<MetadataResponse> MetadataClient::take() {
  fabric::Completion wc;
  while (receives_->poll({&wc, 1}) == 1) {
    std::optional<MetadataResponse> response;
    const std::size_t at = wc.wr_id * kMetadataSlot;
    const std::byte* datagram = memory_->data() + at;
    if (wc.status == fabric::Status::kSuccess && wc.byte_count >= fabric::kGrhBytes &&
        fabric::is_from(wc, datagram, server_)) {
      response = parse_metadata<MetadataResponse>(datagram + fabric::kGrhBytes,
                                                  wc.byte_count - fabric::kGrhBytes);
    }
    if (qp_->state() != fabric::QpState::kError) {
      qp_->receive(memory_->sge(at, kMetadataSlot), wc.wr_id);
    } else if (++ended_receives_ == kClientReceives) {
      env_.reached("krcore/metadata_anew");
      qp_->modify(fabric::QpState::kReset);
      begin();
    }
    // The answer of a request that has been repeated may come twice.
    if (response && response->ticket == ticket_) return response;
  }
  return std::nullopt;
}

MetaClient::Answer MetadataClient::target_of(NodeId node, DctMeta& meta) {
  const Scope step(env_, scope::metadata_ask);
  const std::lock_guard<Mutex> lock(mutex_);
  if (handle_ == nullptr || env_.now() < rests_until_) return MetaClient::Answer::kNoServer;
  ++ticket_;
  Time patience = kFirstAnswer;
  for (int attempt = 0; attempt < kMetadataAttempts; ++attempt, patience *= 2) {
    if (attempt != 0) {
      ++repeated_;
      env_.reached("krcore/metadata_asked_again");
    }
    ask(node);
    std::optional<MetadataResponse> response;
    env_.poll_until(
        [&] {
          response = take();
          return response.has_value();
        },
        env_.now() + patience, &receives_->watch());
    if (!response) continue;
    if (response->is_known == 0) return MetaClient::Answer::kUnknown;
    meta = response->meta;
    return MetaClient::Answer::kFound;
  }
  rests_until_ = env_.now() + kServerRests;
  return MetaClient::Answer::kNoServer;
}

}  // namespace pyrdma::krcore
