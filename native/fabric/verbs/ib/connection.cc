// Sets up connections through librdmacm. The device makes the queue pair, not librdmacm. librdmacm
// gives the attributes of the transitions (rdma_init_qp_attr) and carries the queue pair's number.
#include "fabric/verbs/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "fabric/verbs/ib/library.h"
#include "fabric/verbs/ib/queue_pair.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr int kResolveMs = 2000;

struct Address {
  sockaddr_storage storage{};
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address parse(const std::string& text, std::uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                "verbs: '" + text + "' is not an IP address; give one of the experiment's network");
  }
  return address;
}

/// EventChannel carries librdmacm's events of one connection or of a listener.
class EventChannel {
 public:
  EventChannel() : channel_(CmLibrary::get().create_event_channel()) {
    if (channel_ == nullptr)
      throw_failed("open librdmacm", errno, "load the kernel's module: modprobe rdma_ucm");
    ::fcntl(channel_->fd, F_SETFL, ::fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  }
  ~EventChannel() { CmLibrary::get().destroy_event_channel(channel_); }
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;
  rdma_event_channel* get() const { return channel_; }

  /// Returns null when there is no event. The caller acknowledges the event.
  rdma_cm_event* take() {
    rdma_cm_event* event = nullptr;
    return CmLibrary::get().get_cm_event(channel_, &event) == 0 ? event : nullptr;
  }

 private:
  rdma_event_channel* channel_;
};

/// Event holds the next event of a channel while it is in use.
class Event {
 public:
  Event(Env& env, EventChannel& channel, Time deadline, const std::string& what) {
    env.poll_until([&] { return (event_ = channel.take()) != nullptr; }, deadline);
    if (event_ == nullptr)
      throw Error(ErrorCode::kTimeout, "verbs: " + what + ": no answer before the deadline");
  }
  ~Event() { CmLibrary::get().ack_cm_event(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  const rdma_cm_event* operator->() const { return event_; }
  void expect(rdma_cm_event_type wanted, const std::string& what) const {
    if (event_->event == wanted) return;
    throw Error(ErrorCode::kUnavailable, "verbs: " + what + ": " +
                                             CmLibrary::get().event_str(event_->event) + " (" +
                                             std::to_string(event_->status) + ")");
  }

 private:
  rdma_cm_event* event_ = nullptr;
};

class CmConnection final : public Connection {
 public:
  /// Takes `id`. `channel` is its channel, or null when it uses the listener's.
  CmConnection(VerbsQueuePair& queue_pair, rdma_cm_id* id, std::unique_ptr<EventChannel> channel)
      : queue_pair_(queue_pair), channel_(std::move(channel)), id_(id) {}
  ~CmConnection() override {
    const CmLibrary& cm = CmLibrary::get();
    cm.disconnect(id_);
    while (rdma_cm_event* event = channel_->take()) cm.ack_cm_event(event);
    cm.destroy_id(id_);
  }
  const std::vector<std::byte>& private_data() const override { return private_data_; }
  void keep(const rdma_cm_event& event) {
    const auto& parameters = event.param.conn;
    const auto* data = static_cast<const std::byte*>(parameters.private_data);
    if (data != nullptr) private_data_.assign(data, data + parameters.private_data_len);
  }
  bool is_over() override {
    while (rdma_cm_event* event = channel_->take()) {
      over_ |= event->event == RDMA_CM_EVENT_DISCONNECTED ||
               event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
      CmLibrary::get().ack_cm_event(event);
    }
    if (over_ && queue_pair_.state() != QpState::kError && queue_pair_.state() != QpState::kReset)
      queue_pair_.modify(QpState::kError, nullptr);
    return over_;
  }

 private:
  VerbsQueuePair& queue_pair_;
  std::unique_ptr<EventChannel> channel_;
  rdma_cm_id* id_;
  std::vector<std::byte> private_data_;
  bool over_ = false;
};

VerbsQueuePair& checked(QueuePair& queue_pair, std::span<const std::byte> private_data) {
  if (private_data.size() > kMaxPrivateBytes) {
    throw Error(ErrorCode::kInvalidArgument, "verbs: " + std::to_string(private_data.size()) +
                                                 " private bytes are too many; give at most " +
                                                 std::to_string(kMaxPrivateBytes));
  }
  auto* ours = dynamic_cast<VerbsQueuePair*>(&queue_pair);
  if (ours == nullptr || ours->transport() != Transport::kRc || ours->state() != QpState::kReset) {
    throw Error(ErrorCode::kInvalidArgument,
                "verbs: librdmacm connects only RC queue pairs of this fabric in state RESET");
  }
  return *ours;
}

rdma_conn_param parameters_of(const VerbsQueuePair& queue_pair,
                              std::span<const std::byte> private_data) {
  const QpOptions& options = queue_pair.options();
  rdma_conn_param parameters{};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(private_data.size());
  parameters.responder_resources = static_cast<std::uint8_t>(options.max_outstanding_reads);
  parameters.initiator_depth = static_cast<std::uint8_t>(options.max_outstanding_reads);
  parameters.retry_count = static_cast<std::uint8_t>(options.retry_count);
  parameters.rnr_retry_count = static_cast<std::uint8_t>(options.rnr_retry);
  parameters.qp_num = queue_pair.qp_num();
  return parameters;
}

void step(VerbsQueuePair& queue_pair, rdma_cm_id* id, QpState next) {
  ibv_qp_attr attributes{};
  attributes.qp_state = next == QpState::kInit             ? IBV_QPS_INIT
                        : next == QpState::kReadyToReceive ? IBV_QPS_RTR
                                                           : IBV_QPS_RTS;
  int mask = 0;
  if (CmLibrary::get().init_qp_attr(id, &attributes, &mask) != 0)
    throw_failed("get the attributes of a connection", errno);
  queue_pair.take_step(next, attributes, static_cast<unsigned>(mask));
}

void check_device(const VerbsQueuePair& queue_pair, const rdma_cm_id* id) {
  const Library& ib = Library::get();
  const std::string leads = ib.get_device_name(id->verbs->device);
  if (leads == queue_pair.device_name()) return;
  throw Error(ErrorCode::kInvalidArgument, "verbs: the route uses device " + leads +
                                               ", but the queue pair is on " +
                                               queue_pair.device_name() + "; open " + leads +
                                               " by name, or give another address");
}

class CmListener final : public Listener {
 public:
  CmListener(const std::string& address, std::uint16_t port) {
    const CmLibrary& cm = CmLibrary::get();
    if (cm.create_id(channel_.get(), &id_, nullptr, RDMA_PS_TCP) != 0)
      throw_failed("create a connection identifier", errno);
    Address bound = parse(address, port);
    if (cm.bind_addr(id_, bound.get()) != 0 || (cm.listen)(id_, kBacklog) != 0) {
      const int error = errno;
      cm.destroy_id(id_);
      throw_failed("listen on " + address + " through librdmacm", error,
                   "give the address of an RDMA device (pyrdma devices lists them)");
    }
  }
  ~CmListener() override { CmLibrary::get().destroy_id(id_); }
  std::uint16_t port() const override {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&id_->route.addr.src_storage);
    return ntohs(v4->sin_port);  // the port is at the same place for IPv6
  }
  std::unique_ptr<Connection> accept(Env& env, QueuePair& any, std::span<const std::byte> data,
                                     Time deadline) override {
    const CmLibrary& cm = CmLibrary::get();
    VerbsQueuePair& queue_pair = checked(any, data);
    std::unique_ptr<CmConnection> connection;
    auto channel = std::make_unique<EventChannel>();
    EventChannel& own = *channel;
    {
      const Event request(env, channel_, deadline, "waiting for a connection");
      request.expect(RDMA_CM_EVENT_CONNECT_REQUEST, "waiting for a connection");
      if (cm.migrate_id(request->id, channel->get()) != 0) throw_failed("take a connection", errno);
      connection = std::make_unique<CmConnection>(queue_pair, request->id, std::move(channel));
      connection->keep(*request.operator->());
      check_device(queue_pair, request->id);
      // The requester's attributes are known, so the queue pair is ready before the requester
      // learns of it.
      for (const QpState next : {QpState::kInit, QpState::kReadyToReceive, QpState::kReadyToSend})
        step(queue_pair, request->id, next);
      rdma_conn_param parameters = parameters_of(queue_pair, data);
      if ((cm.accept)(request->id, &parameters) != 0) throw_failed("accept a connection", errno);
    }
    const Event established(env, own, deadline, "accepting a connection");
    established.expect(RDMA_CM_EVENT_ESTABLISHED, "accepting a connection");
    return connection;
  }

 private:
  static constexpr int kBacklog = 64;
  EventChannel channel_;
  rdma_cm_id* id_ = nullptr;
};

}  // namespace

std::unique_ptr<Listener> listen(const std::string& address, std::uint16_t port) {
  return std::make_unique<CmListener>(address, port);
}

std::unique_ptr<Connection> connect(Env& env, QueuePair& any, const std::string& address,
                                    std::uint16_t port, std::span<const std::byte> private_data,
                                    Time deadline) {
  const CmLibrary& cm = CmLibrary::get();
  VerbsQueuePair& queue_pair = checked(any, private_data);
  Address peer = parse(address, port);
  auto own = std::make_unique<EventChannel>();
  EventChannel& channel = *own;
  rdma_cm_id* id = nullptr;
  if (cm.create_id(channel.get(), &id, nullptr, RDMA_PS_TCP) != 0)
    throw_failed("create a connection identifier", errno);
  auto connection = std::make_unique<CmConnection>(queue_pair, id, std::move(own));
  const std::string what = "connecting to " + address + ":" + std::to_string(port);
  if (cm.resolve_addr(id, nullptr, peer.get(), kResolveMs) != 0)
    throw_failed("resolve the address " + address, errno);
  Event(env, channel, deadline, what).expect(RDMA_CM_EVENT_ADDR_RESOLVED, what);
  check_device(queue_pair, id);
  if (cm.resolve_route(id, kResolveMs) != 0) throw_failed("resolve the route to " + address, errno);
  Event(env, channel, deadline, what).expect(RDMA_CM_EVENT_ROUTE_RESOLVED, what);
  step(queue_pair, id, QpState::kInit);
  rdma_conn_param parameters = parameters_of(queue_pair, private_data);
  if ((cm.connect)(id, &parameters) != 0) throw_failed("connect to " + address, errno);
  const Event response(env, channel, deadline, what);
  response.expect(RDMA_CM_EVENT_CONNECT_RESPONSE, what);
  connection->keep(*response.operator->());
  step(queue_pair, id, QpState::kReadyToReceive);
  step(queue_pair, id, QpState::kReadyToSend);
  if (cm.establish(id) != 0) throw_failed("complete the connection to " + address, errno);
  return connection;
}

}  // namespace pyrdma::fabric::verbs
