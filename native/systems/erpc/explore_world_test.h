// Two endpoints whose every step a search chooses (check/explore.h): the endpoint of node 0 is the
// client, that of node 1 the server. Datagrams arrive in any order, twice, late or never; endpoints
// are made again; a node stays silent until the other one takes it for dead.
#pragma once
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check/explore.h"
#include "fabric/by_hand_test.h"
#include "systems/erpc/endpoint.h"
#include "systems/erpc/endpoint_probe_test.h"

namespace pyrdma::erpc {

/// What the client does, and how often what may happen.
struct Mishaps {
  std::uint32_t asks = 0, opens = 0;
  std::uint32_t ticks = 0;  // the clock moves by a timeout
  std::uint32_t copies = 0, losses = 0;
  std::uint32_t client_restarts = 0, server_restarts = 0;
  /// Neither hears the other for longer than the failure timeout; the server alone hears nothing.
  std::uint32_t silences = 0, deafnesses = 0;
};

inline Options small_endpoint() {
  Options options;
  options.credits = 4;
  options.slots = 2;
  options.receive_entries = 64;
  options.max_message = 512;
  options.packet_bytes = kHeaderRoom + sizeof(ManagementMessage);  // 96 bytes of data
  options.congestion_control = CongestionControl::kNone;
  options.retransmission_timeout = options.connect_interval = kMicrosecond;
  options.failure_timeout = 10 * kMicrosecond;
  options.connect_timeout = kSecond;
  return options;
}

struct Plan {
  Mishaps mishaps;
  std::uint32_t request = 32, response = 32;  // bytes
  std::uint32_t server_receives = 64;
  bool answers_later = false;  // the answers of handlers are steps of their own
  bool begins_connected = false;
  Options options = small_endpoint();
};

class RpcWorld {
 public:
  enum class Act : std::uint8_t {
    kDeliver,
    kCopy,
    kLose,
    kTick,
    kOpen,
    kAsk,
    kClose,
    kAnswer,
    kRestart,
    kSilence,
    kDeafness
  };
  struct Choice {
    Act act = Act::kTick;
    std::uint16_t which = 0;  // datagram, answer or node
  };

  RpcWorld(const Plan& plan, Bugs bugs) : plan_(plan), left_(plan.mishaps), bugs_(bugs) {
    for (NodeId node = 0; node < 2; ++node) make(node);
    if (!plan.begins_connected) return;
    take({Act::kOpen});
    calm(8);
    PYRDMA_ASSERT(client().is_connected(*session_));
  }
  RpcWorld(const RpcWorld&) = delete;
  RpcWorld& operator=(const RpcWorld&) = delete;

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    const auto& under_way = network_.under_way;
    for (std::uint16_t i = 0; i < under_way.size(); ++i) {
      const auto end = under_way.begin() + i;
      if (std::find(under_way.begin(), end, *end) != end) continue;  // equal to an older one
      all.push_back({Act::kDeliver, i});
      if (left_.copies != 0) all.push_back({Act::kCopy, i});
      if (left_.losses != 0) all.push_back({Act::kLose, i});
    }
    for (std::uint16_t i = 0; i < waiting_.size(); ++i) all.push_back({Act::kAnswer, i});
    if (session_ && left_.asks != 0) all.push_back({Act::kAsk});
    if (left_.opens != 0 && (!session_ || client().is_lost(*session_)) && pending() == 0)
      all.push_back({Act::kOpen});
    if (session_ && left_.opens != 0 && pending() == 0 && !client().is_lost(*session_))
      all.push_back({Act::kClose});
    if (left_.ticks != 0) all.push_back({Act::kTick});
    if (left_.client_restarts != 0) all.push_back({Act::kRestart, 0});
    if (left_.server_restarts != 0) all.push_back({Act::kRestart, 1});
    if (left_.silences != 0) all.push_back({Act::kSilence});
    if (left_.deafnesses != 0) all.push_back({Act::kDeafness});
    return all;
  }

  void take(const Choice& choice) {
    switch (choice.act) {
      case Act::kDeliver:
        return deliver(choice.which, false);
      case Act::kCopy:
        --left_.copies;
        return deliver(choice.which, true);
      case Act::kLose:
        --left_.losses;
        network_.under_way.erase(network_.under_way.begin() + choice.which);
        return;
      case Act::kTick:
        --left_.ticks;
        return tick();
      case Act::kOpen:
        if (left_.opens != 0) --left_.opens;
        return open();
      case Act::kAsk:
        --left_.asks;
        return ask();
      case Act::kClose:
        return close();
      case Act::kAnswer:
        answer(choice.which);
        return;
      case Act::kRestart:
        --(choice.which == 0 ? left_.client_restarts : left_.server_restarts);
        return restart(choice.which);
      case Act::kSilence:
        --left_.silences;
        return silence(false);
      case Act::kDeafness:
        --left_.deafnesses;
        return silence(true);
    }
  }

  std::string describe(const Choice& choice) const {
    static constexpr std::array<const char*, 11> kNames{"deliver",
                                                        "deliver, and keep,",
                                                        "lose",
                                                        "a tick",
                                                        "open a session",
                                                        "ask",
                                                        "close the session",
                                                        "answer",
                                                        "restart",
                                                        "silence",
                                                        "the server is deaf"};
    std::string text = kNames[static_cast<std::size_t>(choice.act)];
    if (choice.act <= Act::kLose) return text + ' ' + name_of(network_.under_way[choice.which]);
    if (choice.act == Act::kRestart) text += choice.which == 0 ? " client" : " server";
    return text;
  }

  check::StateHash hash() const {
    check::StateHash hash;
    for (const auto& endpoint : endpoints_) EndpointProbe::add(*endpoint, network_.now, hash);
    std::vector<check::StateHash> datagrams;
    for (const auto& each : network_.under_way) {
      check::StateHash& one = datagrams.emplace_back();
      one.add(each.to.node);
      one.add(ByteView(each.bytes));
    }
    hash.add_set(std::move(datagrams));
    for (const Call& call : calls_) {
      hash.add(call.executed | call.ended << 8U | std::uint64_t{call.is_orphan} << 16U);
      hash.add(call.ended != 0 ? static_cast<std::uint64_t>(call.outcome) : 99);
    }
    for (const Answer& each : waiting_) hash.add(each.id);
    for (const std::uint32_t each :
         {left_.asks, left_.opens, left_.ticks, left_.losses, left_.copies, left_.client_restarts,
          left_.server_restarts, left_.silences, left_.deafnesses})
      hash.add(each);
    hash.add(session_ ? 1 + std::uint64_t{*session_} : 0);
    hash.add(has_excuse_);
    hash.add(wrong_.size());
    return hash;
  }

  std::string wrong() const {
    if (!wrong_.empty()) return wrong_;
    for (const Call& call : calls_) {
      const std::string name = "request " + std::to_string(&call - calls_.data());
      if (call.executed > 1) return name + " has run twice";
      if (call.ended > 1) return name + " has ended twice";
      if (call.ended == 0) continue;
      if (call.outcome == Outcome::kNotSent && call.executed != 0)
        return name + " has run, and its end says that it was not sent";
      if (call.outcome == Outcome::kOk && call.executed == 0)
        return name + " has an answer, and has not run";
      if (call.outcome != Outcome::kOk && call.outcome != Outcome::kNotSent &&
          call.outcome != Outcome::kSessionLost)
        return name + " has ended: " + to_string(call.outcome);
    }
    if (session_ && client().is_lost(*session_) && !has_excuse_)
      return "a session is lost, and neither its server nor a silence has ended it";
    for (const auto& endpoint : endpoints_) {
      if (const std::string text = EndpointProbe::wrong(*endpoint); !text.empty()) return text;
    }
    return "";
  }

  // Nothing goes wrong from here. All requests end. A session that works, and a new request, can be
  // had. Then nothing is left of any session, whether the client closes it or dies.
  std::string finish() {
    calm(kRounds);
    if (pending() != 0) return said("a request never ends: " + client().describe_pending());
    if (!probe()) return said("no request succeeds any more: " + client().describe_pending());
    if (client().credits_of(*session_) != plan_.options.credits) return said("credits are lost");
    close();
    calm(kRounds);
    for (NodeId node = 0; node < 2; ++node) {
      if (endpoints_[node]->client_sessions() + endpoints_[node]->server_sessions() != 0)
        return said("node " + std::to_string(node) + " keeps a session that has ended");
    }
    if (!probe()) return said("no request succeeds in a new session");
    endpoints_[0].reset();
    calm(kRounds, plan_.options.failure_timeout);
    return endpoints_[1]->server_sessions() == 0 ? wrong_ : "the session of a dead client stays";
  }

 private:
  static constexpr std::uint32_t kRounds = 60;
  struct Call {
    RpcWorld* world = nullptr;
    MsgBuffer *request = nullptr, *response = nullptr;
    std::uint32_t executed = 0, ended = 0;
    Outcome outcome = Outcome::kNotSent;
    bool is_orphan = false;  // its client's endpoint has died
  };
  struct Answer {
    RequestHandle handle;
    std::uint32_t id = 0;
    std::span<std::byte> response;
  };

  Endpoint& client() { return *endpoints_[0]; }
  const Endpoint& client() const { return *endpoints_[0]; }
  static std::byte byte_of(std::uint32_t id, std::uint32_t at, bool is_response) {
    return static_cast<std::byte>(id * 89 + at * 3 + (is_response ? 128 : 0) + 1);
  }
  std::string said(std::string text) const { return wrong().empty() ? text : wrong(); }

  void make(NodeId node) {
    nodes_[node] = std::make_unique<fabric::by_hand::Node>(network_, node, 2);
    Options options = plan_.options;
    if (node == 1) options.receive_entries = plan_.server_receives;
    endpoints_[node] = std::make_unique<Endpoint>(*nodes_[node], options, 0, bugs_);
    endpoints_[node]->register_handler(1,
                                       [this](RequestHandle& handle) { handle_request(handle); });
  }
  std::uint32_t pending() const {
    std::uint32_t count = 0;
    for (const Call& call : calls_) count += call.ended == 0 && !call.is_orphan;
    return count;
  }

  bool probe() {
    for (std::uint32_t attempt = 0; attempt < 3 && wrong().empty(); ++attempt) {
      if (!session_ || client().is_lost(*session_)) open();
      ask();
      calm(kRounds);
      if (calls_.back().ended != 0 && calls_.back().outcome == Outcome::kOk) return true;
    }
    return false;
  }

  void deliver(std::size_t which, bool keeps) {
    const fabric::by_hand::Datagram datagram = network_.under_way[which];
    if (!keeps)
      network_.under_way.erase(network_.under_way.begin() + static_cast<std::ptrdiff_t>(which));
    network_.deliver(datagram);
    turn(datagram.to.node);
  }
  void turn(NodeId node) {
    if (endpoints_[node] == nullptr) return;
    try {
      endpoints_[node]->run_once();
    } catch (const Error& error) {
      wrong_ = error.what();
    }
  }
  void tick(Time step = kMicrosecond) {
    network_.now += step + 1;
    for (NodeId node = 0; node < 2; ++node) turn(node);
  }
  void open() {
    if (session_) client().destroy_session(*session_);
    session_ = client().create_session({1, 0});
    has_excuse_ = false;
    turn(0);
  }
  void close() {
    client().destroy_session(*session_);
    session_.reset();
    turn(0);
  }
  void ask() {
    const auto id = static_cast<std::uint32_t>(calls_.size());
    Call& call = calls_.emplace_back();
    call.world = this;
    call.request = client().allocate(plan_.request);
    call.response = client().allocate(plan_.response);
    for (std::uint32_t i = 0; i < plan_.request; ++i)
      call.request->data()[i] = byte_of(id, i, false);
    std::memcpy(call.request->data(), &id, sizeof id);
    client().enqueue_request({*session_, 1, call.request, call.response, &RpcWorld::end, this, id});
    turn(0);
  }
  static void end(void* context, std::uint64_t id, Outcome outcome) {
    auto& world = *static_cast<RpcWorld*>(context);
    Call& call = world.calls_[id];
    ++call.ended;
    call.outcome = outcome;
    if (outcome != Outcome::kOk) return;
    bool is_right = call.response->size() == world.plan_.response;
    for (std::uint32_t i = 0; is_right && i < world.plan_.response; ++i)
      is_right = call.response->data()[i] == byte_of(static_cast<std::uint32_t>(id), i, true);
    if (!is_right) world.wrong_ = "request " + std::to_string(id) + " has a wrong answer";
  }
  void handle_request(RequestHandle& handle) {
    std::uint32_t id = 0;
    std::memcpy(&id, handle.request().data(), sizeof id);
    bool is_right = id < calls_.size() && handle.request().size() == plan_.request;
    for (std::uint32_t i = sizeof id; is_right && i < plan_.request; ++i)
      is_right = handle.request()[i] == byte_of(id, i, false);
    if (!is_right) {
      wrong_ = "a handler gets a request that nobody has sent";
      id = 0;
    }
    ++calls_[id].executed;
    // The handler fills its response when it answers.
    const std::span<std::byte> response = handle.response(plan_.response);
    waiting_.push_back({handle, id, response});
    if (!plan_.answers_later || is_calm_) respond(waiting_.size() - 1);
  }
  void respond(std::size_t which) {
    Answer answer = waiting_[which];
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which));
    for (std::uint32_t i = 0; i < plan_.response; ++i)
      answer.response[i] = byte_of(answer.id, i, true);
    answer.handle.respond();
  }
  void answer(std::size_t which) {
    respond(which);
    turn(1);
  }
  void restart(NodeId node) {
    has_excuse_ = true;
    endpoints_[node].reset();
    if (node == 1) waiting_.clear();
    if (node == 0) {
      session_.reset();
      for (Call& call : calls_) call.is_orphan = true;
    }
    make(node);
  }
  // What is under way stays so. What is sent meanwhile is lost, but for what a client hears of a
  // server that hears nothing.
  void silence(bool only_server) {
    has_excuse_ = true;
    const std::size_t before = network_.under_way.size();
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      tick(plan_.options.failure_timeout / 10);
      while (network_.under_way.size() > before) {
        const fabric::by_hand::Datagram last = network_.under_way.back();
        network_.under_way.pop_back();
        if (!only_server || last.to.node != 0) continue;
        network_.deliver(last);
        turn(0);
      }
    }
  }
  // All datagrams arrive, oldest first, and time passes.
  void calm(std::uint32_t rounds, Time step = kMicrosecond) {
    is_calm_ = true;
    while (!waiting_.empty()) answer(0);
    for (std::uint32_t round = 0; round < rounds && wrong_.empty(); ++round) {
      for (std::uint32_t i = 0; !network_.under_way.empty() && i < 100; ++i) deliver(0, false);
      tick(step);
    }
    is_calm_ = false;
  }
  static std::string name_of(const fabric::by_hand::Datagram& datagram) {
    static constexpr std::array<const char*, kPacketKinds> kNames{"request", "response request",
                                                                  "credit return", "response", ""};
    static constexpr std::array<const char*, kManagementKinds> kMessages{
        "connect", "connected", "refused", "disconnect", "disconnected", "ping", "pong", "reset"};
    const PacketHeader header = PacketHeader::at(datagram.bytes.data());
    std::string text = kNames[static_cast<std::size_t>(header.kind())];
    if (header.kind() == PacketKind::kManagement) {
      ManagementMessage message;
      std::memcpy(&message, datagram.bytes.data() + kHeaderBytes, sizeof message);
      text = std::string(kMessages[static_cast<std::size_t>(message.kind)]) + " of session " +
             std::to_string(message.first_request) + " generation " +
             std::to_string(message.client_generation);
    } else {
      text += " " + std::to_string(header.request()) + ", packet " +
              std::to_string(header.packet()) + ", generation " +
              std::to_string(header.generation());
    }
    return text + (datagram.to.node == 0 ? " to the client" : " to the server");
  }

  const Plan plan_;
  Mishaps left_;
  const Bugs bugs_;
  fabric::by_hand::Network network_;
  std::array<std::unique_ptr<fabric::by_hand::Node>, 2> nodes_;
  std::array<std::unique_ptr<Endpoint>, 2> endpoints_;
  std::optional<SessionId> session_;
  std::vector<Call> calls_;
  std::vector<Answer> waiting_;
  std::string wrong_;
  bool has_excuse_ = false;  // for the end of the present session
  bool is_calm_ = false;     // handlers answer at once
};

}  // namespace pyrdma::erpc
