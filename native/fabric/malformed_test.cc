// A million work requests for each provider, most of them wrong in some field. The model
// (malformed_model_test.h) gives the result of each request. Meanwhile a neighbour's queue pair
// works on the same nodes, and the requests must not disturb it. The test also compares the memory
// that no request may touch.
#include <array>

#include "fabric/malformed_generator_test.h"

namespace pyrdma::fabric::malformed {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kRequests = 50'000;
#else
constexpr std::uint64_t kRequests = 1'000'000;
#endif

class Malformed : public testing::TestWithParam<std::string> {
 protected:
  void start() {
    world = make_world(GetParam(), 2);
    a = std::make_unique<Party>(*world, 0);
    b = std::make_unique<Party>(*world, 1);
    neighbour = std::make_unique<Neighbour>(*world);
    const auto link = [this](Transport transport, std::uint32_t max_sges, std::uint32_t max_inline,
                             std::uint32_t access, bool shares = false) {
      links.push_back(std::make_unique<Link>(*a, *b, options_of(transport, max_sges, max_inline),
                                             access, shares));
    };
    link(Transport::kRc, 16, 64, kAllAccess);
    link(Transport::kRc, 2, 0, kRemoteRead);
    if (a->device.capabilities().srq) link(Transport::kRc, 4, 0, kAllAccess, true);
    if (a->device.capabilities().dc) link(Transport::kDc, 4, 64, kAllAccess, true);
    if (a->device.capabilities().uc) link(Transport::kUc, 4, 64, kAllAccess);
    if (a->device.capabilities().ud) link(Transport::kUd, 4, 64, kAllAccess);
  }
  std::optional<Completion> next(Env& env, CompletionQueue& queue, Time timeout) {
    Completion completion;
    if (queue.poll({&completion, 1}) == 1) return completion;
    const bool found = env.poll_until(
        [&] {
          return queue.poll({&completion, 1}) == 1;
        },
        env.now() + timeout, &queue.watch());
    return found ? std::optional(completion) : std::nullopt;
  }
  void disturb(Link& link, Generator& random);
  void post_receive(Link& link, Generator& random);
  void one_request(Link& link, Generator& random);
  void expect_completion(Link& link, std::uint64_t wr_id, Status status);
  void expect_receive(Link& link, const WorkRequest& request, const Verdict& verdict);

  std::unique_ptr<World> world;
  std::unique_ptr<Party> a, b;
  std::unique_ptr<Neighbour> neighbour;
  std::vector<std::unique_ptr<Link>> links;
  std::array<std::uint64_t, 11> statuses{};
  std::array<std::uint64_t, 4> post_errors{};
};
INSTANTIATE_TEST_SUITE_P(Worlds, Malformed, testing::Values("sim", "sim_strong", "shm"),
                         [](const auto& info) { return info.param; });

// Sometimes puts one end into a wrong state.
void Malformed::disturb(Link& link, Generator& random) {
  if (!random.one_in(64)) return;
  if (random.one_in(4)) {                                       // the responder
    if (link.model.is_reliable() && !random.one_in(8)) return;  // costs a timeout
    link.qb->modify(QpState::kError);
    link.model.responder = QpState::kError;
    if (link.model.receive && !link.model.shares_receives) {
      const auto flushed = next(b->env, *link.receives, kSecond);
      ASSERT_TRUE(flushed && flushed->status == Status::kFlushed);
      link.model.receive.reset();
    }
    return;
  }
  const QpAddress peer = link.qb->address();
  QpState& state = link.model.requester;
  link.qa->modify(QpState::kReset);
  state = static_cast<QpState>(random.below(4));
  if (state >= QpState::kInit) link.qa->modify(QpState::kInit);
  if (state >= QpState::kReadyToReceive) link.qa->modify(QpState::kReadyToReceive, &peer);
  if (state == QpState::kReadyToSend) {
    link.qa->modify(QpState::kReadyToSend);
    link.qa->modify(state = QpState::kError);
  }
}

void Malformed::post_receive(Link& link, Generator& random) {
  if (link.model.receive || link.model.responder == QpState::kError || random.one_in(6)) return;
  const ReceiveRequest& receive = random.receive(link);
  const bool good = receive.sge_count <= link.model.max_sges &&
                    (receive.sges != nullptr || receive.sge_count == 0);
  const PostResult result = link.post_receive(receive);
  ASSERT_EQ(result.error, good ? PostError::kNone : PostError::kInvalid);
  ASSERT_EQ(result.accepted, good ? 1u : 0u);
  if (good)
    link.model.receive =
        ModelReceive{receive.wr_id, {receive.sges, receive.sges + receive.sge_count}};
}

void Malformed::expect_completion(Link& link, std::uint64_t wr_id, Status status) {
  const auto completion = next(a->env, *link.sends, 2 * kSecond);
  ASSERT_TRUE(completion) << "expected " << to_string(status);
  ASSERT_EQ(completion->wr_id, wr_id);
  ASSERT_STREQ(to_string(completion->status), to_string(status));
  ASSERT_EQ(completion->qp_num, link.qa->qp_num());
}

void Malformed::expect_receive(Link& link, const WorkRequest& request, const Verdict& verdict) {
  const bool flushes = link.model.receive && !link.model.shares_receives && !verdict.receives &&
                       verdict.responder == QpState::kError &&
                       link.model.responder != QpState::kError;
  if (!verdict.receives && !flushes) return;
  const auto completion = next(b->env, *link.receives, 2 * kSecond);
  ASSERT_TRUE(completion);
  ASSERT_EQ(completion->wr_id, link.model.receive->wr_id);
  ASSERT_EQ(completion->qp_num, link.qb->qp_num());
  ASSERT_STREQ(to_string(completion->status),
               to_string(flushes ? Status::kFlushed : verdict.receive_status));
  link.model.receive.reset();
  if (completion->status != Status::kSuccess) return;
  const bool write = request.opcode == Opcode::kWriteImm;
  const bool immediate = write || request.opcode == Opcode::kSendImm;
  ASSERT_EQ(completion->opcode, write ? Opcode::kReceiveWriteImm : Opcode::kReceive);
  ASSERT_EQ(completion->byte_count, verdict.receive_bytes);
  ASSERT_EQ((completion->flags & kHasImmediate) != 0, immediate);
  if (immediate) {
    ASSERT_EQ(completion->immediate, request.immediate);
  }
}

void Malformed::one_request(Link& link, Generator& random) {
  disturb(link, random);
  post_receive(link, random);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  WorkRequest both[2] = {random.request(link), {}};
  const WorkRequest& request = both[0];
  Judge judge(link.model, a->memory, b->memory);
  // The model judges before the post, because the request may change the bytes that it reads.
  const Verdict verdict = judge.judge(request);
  SCOPED_TRACE(testing::Message() << to_string(link.model.transport) << " "
                                  << to_string(request.opcode) << ", flags " << int{request.flags}
                                  << ", " << request.sge_count << " pieces; expected "
                                  << to_string(verdict.post) << ", " << to_string(verdict.status));
  // A second, signaled request shows when an unsignaled one is done.
  const bool signaled = (request.flags & kSignaled) != 0;
  const std::size_t count = signaled && !random.one_in(8) ? 1 : 2;
  both[1].wr_id = ~request.wr_id;
  both[1].opcode = link.model.transport == Transport::kUd ? Opcode::kSend : Opcode::kWrite;
  both[1].address_handle = link.handle.get();
  const bool arrives = link.model.transport == Transport::kDc;  // a datagram may get lost
  both[1].remote_qpn = arrives ? link.model.responder_qpn : 0;
  both[1].remote_qkey = arrives ? link.model.responder_qkey : ~link.model.responder_qkey;
  const PostResult result = link.qa->post({both, count});
  ++post_errors[static_cast<std::size_t>(verdict.post)];
  ASSERT_STREQ(to_string(result.error), to_string(verdict.post));
  ASSERT_EQ(result.accepted, verdict.post == PostError::kNone ? count : 0);
  if (verdict.post == PostError::kNone) {
    ++statuses[static_cast<std::size_t>(verdict.status)];
    const bool failed = verdict.status != Status::kSuccess;
    if (failed || signaled) {
      ASSERT_NO_FATAL_FAILURE(expect_completion(link, request.wr_id, verdict.status));
    }
    if (count == 2) {
      ASSERT_NO_FATAL_FAILURE(
          expect_completion(link, both[1].wr_id, failed ? Status::kFlushed : Status::kSuccess));
    }
  }
  ASSERT_NO_FATAL_FAILURE(expect_receive(link, request, verdict));
  // Over a network no completion reports the arrival of an unreliable request. In weak memory no
  // completion reports the placement of a write.
  const bool is_weak = GetParam() == "sim";
  const bool travels = GetParam() != "shm" && (is_weak || !link.model.is_reliable());
  if (travels && verdict.post == PostError::kNone)
    a->env.sleep_until(a->env.now() + (is_weak ? 10 : 5) * kMicrosecond);
  judge.adopt();
  ASSERT_STREQ(to_string(link.qa->state()), to_string(verdict.requester));
  ASSERT_STREQ(to_string(link.qb->state()), to_string(verdict.responder));
  link.model.requester = verdict.requester;
  link.model.responder = verdict.responder;
  const bool broken =
      verdict.requester != QpState::kReadyToSend || verdict.responder != QpState::kReadyToSend;
  if (broken && !random.one_in(4)) link.renew();
}

TEST_P(Malformed, AMillionRequestsEndAsTheyMust) {
  start();
  Generator random(*a, *b, 11);
  const std::uint64_t requests = GetParam() == "sim" ? kRequests / 5 : kRequests;
  for (std::uint64_t i = 0; i < requests; ++i) {
    const bool beside = i % 16 == 0;
    if (beside) {
      ASSERT_NO_FATAL_FAILURE(neighbour->begin());
    }
    Link& link = *links[random.below(links.size())];
    ASSERT_NO_FATAL_FAILURE(one_request(link, random)) << "request " << i;
    if (beside) {
      ASSERT_NO_FATAL_FAILURE(neighbour->end());
    }
    if (i % 64 != 0) continue;
    ASSERT_TRUE(a->memory.matches()) << "the requester's memory, after request " << i;
    ASSERT_TRUE(b->memory.matches()) << "the responder's memory, after request " << i;
  }
  // Each outcome has occurred often.
  for (const Status status :
       {Status::kSuccess, Status::kLocalLength, Status::kLocalProtection, Status::kFlushed,
        Status::kRemoteInvalidRequest, Status::kRemoteAccess, Status::kRemoteOperation,
        Status::kRnrRetryExceeded, Status::kRetryExceeded})
    EXPECT_GT(statuses[static_cast<std::size_t>(status)], requests / 20000) << to_string(status);
  EXPECT_GT(statuses[0], requests / 5);
  EXPECT_LT(statuses[0], requests * 3 / 5);
  EXPECT_GT(post_errors[static_cast<std::size_t>(PostError::kInvalid)], requests / 50);
  EXPECT_GT(post_errors[static_cast<std::size_t>(PostError::kInvalidState)], requests / 1000);
  for (const auto& link : links) {
    Completion none;
    EXPECT_EQ(link->sends->poll({&none, 1}), 0u);
    EXPECT_EQ(link->receives->poll({&none, 1}), 0u);
    EXPECT_EQ(link->unused_a->poll({&none, 1}), 0u);
    EXPECT_EQ(link->unused_b->poll({&none, 1}), 0u);
  }
}

}  // namespace
}  // namespace pyrdma::fabric::malformed
