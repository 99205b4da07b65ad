// Drawn malformed requests on any device, few enough for an emulated one. The model
// (malformed_model_test.h) gives the answers of NICs. This file has the different answers of
// Soft-RoCE, which its page (verbs/README.md) lists. All other answers must be those of a NIC, and
// memory must match byte for byte.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "fabric/malformed_generator_test.h"

namespace pyrdma::fabric::malformed {
namespace {

constexpr std::uint64_t kPacket = 1024;  // payload bytes of a packet, at least

/// The allowed outcomes of a request. An empty list allows no completion.
struct Outcomes {
  PostError post = PostError::kNone;
  std::vector<Status> send, receive;
  std::vector<QpState> requester, responder;
  bool memory_is_open = false;
};

template <typename T>
bool among(const std::vector<T>& all, T one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::uint64_t bytes_of(const WorkRequest& request) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) sum += request.sges[i].length;
  return sum;
}

/// Returns whether Soft-RoCE refuses the post; NICs accept it and fail the request later.
bool is_refused(const ModelLink& link, const WorkRequest& request) {
  const std::uint64_t bytes = bytes_of(request);
  return bytes > kMaxMessage || (link.transport == Transport::kUd && bytes > link.max_datagram) ||
         (is_atomic(request.opcode) && (bytes != 8 || request.remote_addr % 8 != 0));
}

bool lacks_the_right(const ModelLink& link, const WorkRequest& request) {
  if (link.transport != Transport::kRc || is_send(request.opcode)) return false;
  const std::uint32_t right = is_write(request.opcode)          ? kRemoteWrite
                              : request.opcode == Opcode::kRead ? kRemoteRead
                                                                : kRemoteAtomic;
  return (link.responder_access & right) == 0;
}

/// Returns the outcomes on a NIC. `before` is the link's state before the request.
Outcomes of_a_nic(const ModelLink& before, const Verdict& verdict) {
  Outcomes out{verdict.post, {}, {}, {verdict.requester}, {verdict.responder}, false};
  if (verdict.post != PostError::kNone) return out;
  out.send = {verdict.status};
  const bool flushes = verdict.responder == QpState::kError &&
                       before.responder != QpState::kError && before.receive.has_value();
  if (verdict.receives)
    out.receive = {verdict.receive_status};
  else if (flushes)
    out.receive = {Status::kFlushed};
  return out;
}

/// Returns the outcomes on Soft-RoCE. `verdict` is that of a NIC. `loses_local_errors`: see World.
Outcomes of_soft_roce(const ModelLink& before, const WorkRequest& request, const Verdict& verdict,
                      bool loses_local_errors) {
  Outcomes out = of_a_nic(before, verdict);
  if (verdict.post != PostError::kNone) return out;
  if (is_refused(before, request))
    return {PostError::kInvalid, {}, {}, {before.requester}, {before.responder}, false};
  if (verdict.status == Status::kFlushed) return out;
  // Unreliable queue pairs stop sends and receives, not only sends.
  if (verdict.requester == QpState::kSendQueueError) out.requester = {QpState::kError};
  const bool receive = before.receive.has_value();
  const bool deaf = before.responder == QpState::kError;
  const bool local = verdict.status == Status::kLocalProtection;
  if (local && loses_local_errors) out.send.push_back(Status::kFlushed);
  if (local && !deaf && (returns_data(request.opcode) || bytes_of(request) > kPacket)) {
    // Soft-RoCE notices the error when the answer comes, or after earlier packets have left. The
    // target has executed the request by then, or has an error of its own.
    out.send.insert(out.send.end(), {Status::kRemoteAccess, Status::kRemoteInvalidRequest,
                                     Status::kRemoteOperation, Status::kRnrRetryExceeded});
    out.responder = {QpState::kReadyToSend, QpState::kError};
    if (receive) out.receive = {Status::kFlushed, Status::kLocalQpOperation, Status::kRemoteAccess};
    out.memory_is_open = true;
    return out;
  }
  if (local || deaf) return out;
  if (lacks_the_right(before, request)) {  // checked first, also for requests of no bytes
    out.send = {Status::kRemoteInvalidRequest};
    out.receive = receive ? std::vector{Status::kFlushed} : std::vector<Status>{};
    out.requester = out.responder = {QpState::kError};
    out.memory_is_open = true;
    return out;
  }
  if (verdict.status == Status::kRemoteAccess && request.opcode == Opcode::kWriteImm) {
    if (receive) {
      out.receive = {Status::kRemoteAccess, Status::kFlushed};
    } else {  // it misses the receive before it checks the region
      out.send = {Status::kRnrRetryExceeded};
      out.responder = {before.responder};
    }
  }
  if (verdict.receives && verdict.receive_status == Status::kLocalLength) {
    out.receive = {Status::kLocalQpOperation};
    if (before.transport == Transport::kRc) {
      out.send = {Status::kRemoteOperation};
    } else if (loses_local_errors) {  // it drops the request, and the receive stays
      out.receive.push_back(Status::kFlushed);
      out.responder.push_back(before.responder);
    }
    out.memory_is_open = true;  // the bytes that fit may be placed
  }
  if (verdict.receives && verdict.receive_status == Status::kLocalProtection) {
    // Soft-RoCE checks only the bytes that the payload needs.
    out.receive = {Status::kLocalQpOperation, Status::kSuccess};
    out.send.push_back(Status::kSuccess);
    out.requester.push_back(QpState::kReadyToSend);
    out.responder.push_back(QpState::kReadyToSend);
    out.memory_is_open = true;
  }
  return out;
}

class MalformedOnAnyDevice : public testing::TestWithParam<std::string> {
 protected:
  void one_request(Link& link, Generator& random);
  void disturb(Link& link, Generator& random);
  void post_receive(Link& link, Generator& random);
  static std::optional<Completion> next(Env& env, CompletionQueue& queue, Time timeout) {
    Completion completion;
    const bool found = env.poll_until(
        [&] {
          return queue.poll({&completion, 1}) == 1;
        },
        env.now() + timeout, &queue.watch());
    return found ? std::optional(completion) : std::nullopt;
  }
  void adopt_all() {
    for (Party* party : {a.get(), b.get()})
      for (ModelRegion& region : party->memory.regions)
        party->memory.adopt(region.key, region.addr, region.size);
  }

  std::unique_ptr<World> world;
  std::unique_ptr<Party> a, b;
  std::array<int, 16> statuses{};
  int refused = 0;
  bool soft_roce = false;
  bool spent = false;  // the link cannot be used any more
};

void MalformedOnAnyDevice::disturb(Link& link, Generator& random) {
  if (!random.one_in(32)) return;
  const bool reliable = link.model.transport == Transport::kRc;
  if (random.one_in(reliable ? 64 : 4)) {  // a silent responder costs a timeout
    link.qb->modify(QpState::kError);
    link.model.responder = QpState::kError;
    return;
  }
  const QpAddress peer = link.qb->address();
  link.qa->modify(QpState::kReset);
  link.model.requester = static_cast<QpState>(random.below(4));
  if (link.model.requester >= QpState::kInit) link.qa->modify(QpState::kInit);
  if (link.model.requester >= QpState::kReadyToReceive)
    link.qa->modify(QpState::kReadyToReceive, &peer);
  if (link.model.requester == QpState::kReadyToSend) {
    link.qa->modify(QpState::kReadyToSend);
    link.qa->modify(link.model.requester = QpState::kError);
  }
}

void MalformedOnAnyDevice::post_receive(Link& link, Generator& random) {
  if (link.model.receive || random.one_in(6)) return;
  const ReceiveRequest& receive = random.receive(link);
  const bool good = receive.sge_count <= link.model.max_sges &&
                    (receive.sges != nullptr || receive.sge_count == 0);
  ASSERT_EQ(link.qb->post_receive({&receive, 1}).accepted, good ? 1u : 0u);
  if (good)
    link.model.receive =
        ModelReceive{receive.wr_id, {receive.sges, receive.sges + receive.sge_count}};
}

void MalformedOnAnyDevice::one_request(Link& link, Generator& random) {
  post_receive(link, random);
  disturb(link, random);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  WorkRequest both[2] = {random.request(link), {}};
  const WorkRequest& request = both[0];
  const ModelLink before = link.model;
  Judge judge(link.model, a->memory, b->memory);
  const Verdict verdict = judge.judge(request);
  const Outcomes expected =
      soft_roce ? of_soft_roce(before, request, verdict, world->loses_local_errors())
                : of_a_nic(before, verdict);
  SCOPED_TRACE(
      testing::Message() << to_string(before.transport) << " with access "
                         << before.responder_access << ", " << to_string(request.opcode)
                         << ", flags " << int{request.flags} << ", " << request.sge_count
                         << " pieces; a NIC: " << to_string(verdict.post) << ", "
                         << to_string(verdict.status) << ", receive "
                         << (verdict.receives ? to_string(verdict.receive_status) : "none"));
  // A second, signaled request shows when an unsignaled one is done. A read needs a right that
  // every link has.
  const std::size_t count = (request.flags & kSignaled) != 0 ? 1 : 2;
  both[1].wr_id = ~request.wr_id;
  both[1].opcode = before.transport == Transport::kUd   ? Opcode::kSend
                   : before.transport == Transport::kUc ? Opcode::kWrite
                                                        : Opcode::kRead;
  both[1].address_handle = link.handle.get();
  both[1].remote_qkey = ~before.responder_qkey;
  const PostResult result = link.qa->post({both, count});
  ASSERT_STREQ(to_string(result.error), to_string(expected.post));
  if (expected.post != PostError::kNone) {
    ASSERT_EQ(result.accepted, 0u);
    ++refused;
  } else {
    ASSERT_EQ(result.accepted, count);
    auto done = next(a->env, *link.sends, 30 * kSecond);
    ASSERT_TRUE(done) << "no completion";
    const bool is_second = done->wr_id == both[1].wr_id;
    ASSERT_TRUE(is_second ? count == 2 : done->wr_id == request.wr_id);
    ASSERT_TRUE(among(expected.send, done->status))
        << to_string(done->status) << (is_second ? " of the second request" : "") << ", states "
        << to_string(link.qa->state()) << " and " << to_string(link.qb->state());
    ++statuses[static_cast<std::size_t>(done->status)];
    if (count == 2 && !is_second) {
      const bool failed = done->status != Status::kSuccess;
      done = next(a->env, *link.sends, 30 * kSecond);
      ASSERT_TRUE(done && done->wr_id == both[1].wr_id);
      ASSERT_EQ(done->status, failed ? Status::kFlushed : Status::kSuccess);
    }
    if (before.receive && before.responder != QpState::kError) {
      const bool sure = !expected.receive.empty() && !expected.memory_is_open;
      done = next(b->env, *link.receives, sure ? 30 * kSecond : kMillisecond);
      ASSERT_TRUE(done || !sure) << "no completion of the receive";
      if (done) {
        ASSERT_EQ(done->wr_id, before.receive->wr_id);
        ASSERT_TRUE(among(expected.receive, done->status)) << to_string(done->status);
      }
    } else if (before.transport != Transport::kRc) {
      a->env.sleep_until(a->env.now() + kMillisecond);  // no completion reports the arrival
    }
  }
  ASSERT_TRUE(among(expected.requester, link.qa->state())) << to_string(link.qa->state());
  ASSERT_TRUE(among(expected.responder, link.qb->state())) << to_string(link.qb->state());
  judge.adopt();
  if (expected.post != verdict.post || expected.memory_is_open ||
      (expected.send != std::vector{verdict.status} && expected.post == PostError::kNone)) {
    adopt_all();  // the model has followed a NIC
  }
  ASSERT_TRUE(a->memory.matches()) << "the requester's memory";
  ASSERT_TRUE(b->memory.matches()) << "the responder's memory";
  if (expected.post != PostError::kNone && before.requester == QpState::kReadyToSend &&
      before.responder == QpState::kReadyToSend)
    return;
  // After a long read with a bad local buffer the requester's completer still waits for the rest of
  // the answer. A reset does not end this wait, so the next answer is an error without a status.
  spent = soft_roce && request.opcode == Opcode::kRead && bytes_of(request) > kPacket &&
          verdict.status == Status::kLocalProtection;
  link.renew();
  Completion left;
  while (link.sends->poll({&left, 1}) == 1 || link.receives->poll({&left, 1}) == 1) {
  }
}

TEST_P(MalformedOnAnyDevice, AnswersAsTheModelOrItsPageSays) {
  world = make_world(GetParam(), 2);
  soft_roce = world->soft_roce();
  a = std::make_unique<Party>(*world, 0);
  b = std::make_unique<Party>(*world, 1);
  Neighbour neighbour(*world);
  struct Kind {
    Transport transport;
    std::uint32_t sges, inline_bytes, access;
  };
  constexpr Kind kKinds[] = {{Transport::kRc, 16, 64, kAllAccess},
                             {Transport::kRc, 2, 0, kRemoteRead},
                             {Transport::kUc, 4, 64, kAllAccess},
                             {Transport::kUd, 4, 64, kAllAccess}};
  const auto link_of = [&](const Kind& kind) {
    return std::make_unique<Link>(*a, *b, options_of(kind.transport, kind.sges, kind.inline_bytes),
                                  kind.access);
  };
  std::vector<std::unique_ptr<Link>> links;
  for (const Kind& kind : kKinds) links.push_back(link_of(kind));
  Generator random(*a, *b, 11);
  const int requests = soft_roce ? 2500 : 5000;  // each takes some milliseconds of an emulated CPU
  for (int i = 0; i < requests; ++i) {
    const bool beside = i % 16 == 0;
    if (beside) {
      ASSERT_NO_FATAL_FAILURE(neighbour.begin());
    }
    const std::size_t chosen = random.below(links.size());
    ASSERT_NO_FATAL_FAILURE(one_request(*links[chosen], random)) << "request " << i;
    if (std::exchange(spent, false)) links[chosen] = link_of(kKinds[chosen]);
    if (beside) {
      ASSERT_NO_FATAL_FAILURE(neighbour.end());
    }
  }
  for (const Status status :
       {Status::kSuccess, Status::kLocalProtection, Status::kFlushed, Status::kRemoteInvalidRequest,
        Status::kRemoteAccess, Status::kRemoteOperation, Status::kRnrRetryExceeded})
    EXPECT_GT(statuses[static_cast<std::size_t>(status)], 10) << to_string(status);
  EXPECT_GT(statuses[0], requests / 5);
  EXPECT_GT(refused, requests / 20);
}
INSTANTIATE_TEST_SUITE_P(Worlds, MalformedOnAnyDevice, and_verbs({"sim_strong", "shm"}),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pyrdma::fabric::malformed
