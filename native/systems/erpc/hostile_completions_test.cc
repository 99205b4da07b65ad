// Over shared memory a peer writes the completions of an endpoint. One that names no place of the
// endpoint is dropped and counted: the endpoint reads no memory by it.
#include <random>

#include "fabric/shm/device.h"
#include "fabric/shm/rings.h"
#include "systems/erpc/worlds_test.h"

namespace pyrdma::erpc {
namespace {

namespace shm = fabric::shm;

/// Writes completions into the receive queue of an endpoint, as any peer could.
class Forger {
 public:
  explicit Forger(Endpoint& endpoint)
      : node_(static_cast<shm::ShmDevice&>(endpoint.env().device()).node()),
        qp_num_(endpoint.address().qp_num) {
    const shm::QpEntry& entry = node_.control().queue_pairs[shm::qp_slot(qp_num_)];
    ring_ = node_.own_peer().completion_view(shm::relaxed(entry.completions),
                                             shm::relaxed(entry.completions_id));
  }
  void write(std::uint64_t wr_id, std::uint32_t bytes, std::uint32_t stride) {
    fabric::Completion forged;
    forged.wr_id = wr_id;
    forged.opcode = fabric::Opcode::kReceive;
    forged.flags = fabric::kHasGrh;
    forged.qp_num = qp_num_;
    forged.byte_count = bytes;
    forged.stride = stride;
    shm::CompletionWriter writer;
    ASSERT_EQ(writer.open(ring_, node_.holder(), node_.session(), shm::kPatience),
              shm::Opened::kYes);
    writer.push(forged);
    writer.close();
  }

 private:
  shm::Node& node_;
  const std::uint32_t qp_num_;
  shm::CompletionView ring_;
};

TEST(ErpcShmHostile, CompletionsOfNoPlaceAreDropped) {
  run_endpoints("shm", 2, {}, [](Endpoint& endpoint) {
    serve_sized(endpoint);
    if (endpoint.env().node() != 0) return;
    const SessionId session = connect_to(endpoint, {1, 0});
    Forger forger(endpoint);
    std::mt19937_64 random(5);
    for (std::uint32_t i = 0; i < 1000; ++i) {
      const std::uint64_t before = endpoint.packets().malformed;
      switch (i % 3) {
        case 0:
          forger.write(random() | 1ULL << 40U, 100, 0);
          break;
        case 1:
          forger.write(0, 4200 + static_cast<std::uint32_t>(random() % 60'000), 0);
          break;
        default:
          forger.write(0, 100, 1024 + static_cast<std::uint32_t>(random() % 60'000));
      }
      while (endpoint.packets().malformed == before) endpoint.run_once();
    }
    TestCall call(endpoint, 1000, 1000);
    ASSERT_TRUE(call.send(session).wait());
    EXPECT_TRUE(call.is_right());
  });
}

}  // namespace
}  // namespace pyrdma::erpc
