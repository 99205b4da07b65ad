// A hostile node sends any packets to an endpoint: as a client that lies, as a server that lies,
// and as one without a session. The endpoint neither fails nor ends, and its session with an honest
// node goes on, also if the hostile node guesses the number and the generation of that session.
#include "base/error.h"
#include "base/hostile_test.h"
#include "fabric/sim/cluster.h"
#include "fabric/sim/profile_test.h"
#include "systems/erpc/raw_peer_test.h"

namespace pyrdma::erpc {
namespace {

constexpr NodeId kHostile = 0, kVictim = 1, kHonest = 2;
constexpr std::uint32_t kMostPackets = 60;

Options hostile_options() {
  Options options;
  options.credits = 4;
  options.slots = 2;
  options.packet_bytes = 512;
  options.max_message = 1 << 16;
  options.retransmission_timeout = 20 * kMicrosecond;
  options.failure_timeout = 2 * kMillisecond;
  options.connect_interval = 20 * kMicrosecond;
  options.receive_entries = 64;
  return options;
}

// What the hostile node knows: its sessions with the victim, as client and as server.
class Attack {
 public:
  Attack(Env& env, std::string_view input) : peer_(env), input_(input) {
    peer_.publish("erpc");
    peer_.aim_at(kVictim);
  }
  void run() {
    connect();
    for (std::uint32_t i = 0; i < kMostPackets && !input_.done(); ++i) {
      send_one();
      while (const auto packet = peer_.receive(input_.number(1) % 8 * kMicrosecond / 2))
        learn(*packet);
    }
  }

 private:
  ManagementMessage own(ManagementKind kind) const {
    ManagementMessage message = connect_message(hostile_options(), peer_.address());
    message.kind = kind;
    message.client_token = 99;
    message.server_token = as_client_.server_token;
    message.server_session = as_client_.server_session;
    message.server_generation = as_client_.server_generation;
    return message;
  }
  void connect() {
    peer_.send(own(ManagementKind::kConnect));
    for (int i = 0; i < 3; ++i) {
      if (const auto packet = peer_.receive(20 * kMicrosecond)) learn(*packet);
    }
  }
  void learn(const RawPacket& packet) {
    const ManagementMessage message = packet.message();
    if (packet.header.kind() != PacketKind::kManagement) return;
    if (message.kind == ManagementKind::kConnected) as_client_ = message;
    if (message.kind != ManagementKind::kConnect) return;
    as_server_ = message;
    peer_.send(answer_message(message, ManagementKind::kConnected, peer_.address()));
  }
  void send_header(std::uint64_t whose) {
    PacketHeader header;
    const auto kind = static_cast<PacketKind>(input_.number(1) % 5);
    const std::uint64_t number = input_.number(1), size = input_.number(1);
    header.what = PacketHeader::make_what(
        kind, static_cast<std::uint32_t>(number < 200 ? number % 8 : number << 8U),
        static_cast<std::uint32_t>(size < 200 ? size * 16 : size << 16U),
        static_cast<std::uint8_t>(input_.number(1)));
    header.what ^= input_.number(1) % 16 == 0 ? input_.number(8) : 0;
    header.whose = whose;
    const std::vector<std::byte> data(input_.number(2) % 512);
    peer_.send(header, data.data(), data.size());
  }
  void send_message() {
    ManagementMessage message = own(static_cast<ManagementKind>(input_.number(1) % 9));
    message.is_for_client = static_cast<std::uint16_t>(input_.number(1) % 2);
    for (std::uint64_t edits = input_.number(1) % 4; edits != 0; --edits) {
      auto* words = reinterpret_cast<std::byte*>(&message);
      // The last words are an address: a wrong node or number is dropped by the network.
      words[input_.number(1) % sizeof message] = static_cast<std::byte>(input_.number(1));
    }
    PacketHeader header;
    const std::uint64_t bytes = input_.number(1) < 240 ? sizeof message : input_.number(1) % 96;
    header.what =
        PacketHeader::make_what(PacketKind::kManagement, 0, static_cast<std::uint32_t>(bytes), 0);
    peer_.send(header, &message, bytes);
  }
  void send_request() {
    PacketHeader header;
    next_ += hostile_options().slots;
    header.what = PacketHeader::make_what(PacketKind::kRequest, 0,
                                          static_cast<std::uint32_t>(input_.number(2)), 1);
    header.whose =
        PacketHeader::make_whose(next_, as_client_.server_session, as_client_.server_generation);
    const std::vector<std::byte> data(
        std::min<std::uint64_t>(header.size(), hostile_options().packet_bytes - kHeaderRoom));
    peer_.send(header, data.data(), data.size());
  }
  void send_one() {
    switch (input_.number(1) % 6) {
      case 0: {
        const std::string_view text = input_.text(250);
        peer_.send(text.data(), text.size());
        return;
      }
      case 1:
        return send_header(PacketHeader::make_whose(
            input_.number(1) % 16, as_client_.server_session, as_client_.server_generation));
      case 2:
        return send_header(PacketHeader::make_whose(
            input_.number(1) % 16, as_server_.client_session, as_server_.client_generation));
      case 3:
        return send_header(input_.number(8));
      case 4:
        return send_message();
      default:
        return send_request();
    }
  }

  RawPeer peer_;
  hostile::Reader input_;
  ManagementMessage as_client_, as_server_;
  std::uint64_t next_ = 0;
};

struct HostileRun {
  bool is_over = false;
  std::uint32_t ended = 0, right = 0;
  SessionId sessions[2] = {};
};

void count_end(void* context, std::uint64_t, Outcome outcome) {
  auto* run = static_cast<HostileRun*>(context);
  ++run->ended;
  run->right += outcome == Outcome::kOk;
}

void serve_honestly(Endpoint& endpoint) {
  endpoint.register_handler(1, [](RequestHandle& handle) {
    const std::span<std::byte> response = handle.response(1500);
    std::memset(response.data(), static_cast<int>(handle.request().size()), response.size());
    handle.respond();
  });
}

// Calls between the victim and the honest node, all the time.
void call_honestly(Endpoint& endpoint, HostileRun& run, NodeId other, std::uint32_t calls) {
  SessionId& session = run.sessions[endpoint.env().node() - kVictim];
  session = endpoint.create_session({other, 0});
  endpoint.connect({&session, 1});
  MsgBuffer* request = endpoint.allocate(1200);
  MsgBuffer* response = endpoint.allocate(1500);
  for (std::uint32_t i = 0; i < calls; ++i) {
    const std::uint32_t before = run.ended;
    endpoint.enqueue_request({session, 1, request, response, &count_end, &run, 0});
    if (!endpoint.run_until([&] { return run.ended != before; },
                            endpoint.env().now() + 20 * kMillisecond))
      return;
  }
}

void attack(std::string_view input) {
  HostileRun of_victim, of_honest;
  fabric::sim::SimOptions options;
  options.nodes = 3;
  options.profile = fabric::sim::test_profile();
  options.memory = fabric::sim::MemoryModel::weak();
  options.time_limit = kSecond;
  fabric::sim::SimCluster cluster(options);
  constexpr std::uint32_t kCalls = 12;
  bool is_attacked = false;
  std::string failure;
  cluster.run([&](Env& env) {
    if (env.node() == kHostile) {
      Attack attack(env, input);
      attack.run();
      is_attacked = true;
      return;
    }
    try {
      Endpoint endpoint(env, hostile_options());
      serve_honestly(endpoint);
      HostileRun& run = env.node() == kVictim ? of_victim : of_honest;
      MsgBuffer* const request = endpoint.allocate(900);
      MsgBuffer* const response = endpoint.allocate(3000);
      HostileRun ignored;
      if (env.node() == kVictim) {
        const SessionId to_hostile = endpoint.create_session({kHostile, 0});
        endpoint.enqueue_request({to_hostile, 1, request, response, &count_end, &ignored, 0});
      }
      call_honestly(endpoint, run, env.node() == kVictim ? kHonest : kVictim, kCalls);
      run.is_over = true;
      while (!of_victim.is_over || !of_honest.is_over || !is_attacked)
        endpoint.run_for(20 * kMicrosecond);
    } catch (const Error& error) {
      failure = error.what();
      of_victim.is_over = of_honest.is_over = true;
    }
  });
  if (!failure.empty()) std::fprintf(stderr, "%s\n", failure.c_str());
  PYRDMA_MUST(failure.empty());
  PYRDMA_MUST(of_victim.right == kCalls && of_honest.right == kCalls);
}

std::vector<std::string> good_attacks() {
  std::vector<std::string> seeds;
  for (char choice = 0; choice < 6; ++choice) {
    std::string seed;
    for (char i = 0; i < 12; ++i) {
      seed += choice;
      for (char j = 0; j < 9; ++j) seed += static_cast<char>(i * j);
    }
    seeds.push_back(seed);
  }
  return seeds;
}

PYRDMA_HOSTILE(ErpcPackets, good_attacks(), attack)

}  // namespace
}  // namespace pyrdma::erpc
