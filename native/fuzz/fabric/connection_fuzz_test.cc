// A search over one connection: random requests of random lengths, under random faults of packets
// and paths, with receives that come late. The checks are the promises of fabric/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "fabric/sim/faulty_world_test.h"
#include "fuzz/small_test.h"

namespace pyrdma::fuzz {
namespace {
using namespace fabric;
using fabric::sim::FaultyWorld;
using fabric::sim::MemoryModel;

constexpr std::uint32_t kLongest = 700'000;
constexpr std::uint32_t kLengths[] = {0,     8,     64,    4096,    16384,
                                      16385, 40000, 65536, 200'000, kLongest};
constexpr std::size_t kSlot = 704'512;  // a request's place in each region
constexpr std::uint64_t kFirstCount = 1000;

std::byte source_byte(std::size_t request) { return static_cast<std::byte>(request + 1); }
std::byte answer_byte(std::size_t at) { return static_cast<std::byte>((at * 31) >> 3); }

struct Request {
  Opcode opcode = Opcode::kWrite;
  std::uint32_t bytes = 0;
  std::uint8_t flags = 0;
  bool done = false;
  Status status = Status::kGeneral;
  bool announces() const { return opcode == Opcode::kWriteImm || opcode == Opcode::kSendImm; }
};

class ConnectionSearch {
 public:
  explicit ConnectionSearch(std::uint64_t seed)
      : rng_(seed, -1, "connection search"),
        reliable_(rng_.below(4) != 0),
        world_(draw_faults(), 2, rng_.below(2) == 0 ? MemoryModel::weak() : MemoryModel::strong()),
        requests_(draw_requests()),
        a_(world_, 0, requests_.size() * kSlot),
        b_(world_, 1, requests_.size() * kSlot),
        receive_memory_(b_.device.allocate(*b_.pd, (announced_ + 1) * kSlot, kAllAccess)),
        counter_(b_.device.allocate(*b_.pd, 8, kAllAccess)) {
    const QpOptions options = draw_options();
    qa_ = a_.queue_pair(options);
    qb_ = b_.queue_pair(options);
    qa_->connect(qb_->address());
    qb_->connect(qa_->address());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      std::fill_n(a_.memory->data() + i * kSlot, requests_[i].bytes, source_byte(i));
      if (requests_[i].opcode != Opcode::kRead) continue;
      for (std::size_t k = 0; k < requests_[i].bytes; ++k)
        b_.memory->data()[i * kSlot + k] = answer_byte(k);
    }
    *reinterpret_cast<std::uint64_t*>(counter_->data()) = kFirstCount;
    for (std::uint64_t early = rng_.below(announced_ + 1); early > 0; --early) post_receive();
  }

  void run() {
    const Time end = a_.env.now() + 4 * kSecond;
    while (completed_ < requests_.size() && a_.env.now() < end) {
      while (posted_ < requests_.size() && rng_.below(4) != 0 && post(posted_)) ++posted_;
      if (rng_.below(3) == 0) post_receive();
      if (blocks_ && rng_.below(20) == 0) block();
      a_.env.sleep_until(a_.env.now() + 1000 + static_cast<Time>(rng_.below(20'000)));
      poll();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(completed_, requests_.size()) << "a request never ended";
    a_.env.sleep_until(a_.env.now() + 2 * kMillisecond);
    poll();
    check();
  }
  std::uint64_t successes() const { return successes_; }
  std::uint64_t errors() const { return failed_; }
  std::uint64_t repeated() { return world_.cluster.counters(0).retransmitted; }

 private:
  std::map<std::string, double> draw_faults() {
    std::map<std::string, double> faults;
    const double scale = std::array{0.0, 1.0, 1.0, 4.0}[rng_.below(4)];
    blocks_ = rng_.below(4) == 0;
    if (scale == 0) return faults;
    for (const char* fault :
         {"loss", "ack_loss", "duplicate", "reorder", "delay", "late_completion", "rnr"})
      if (rng_.below(2) == 0)
        faults[fault] = scale * 0.002 * (1 + static_cast<double>(rng_.below(25)));
    if (faults.count("delay") != 0) faults["delay.max_ns"] = 20'000;
    return faults;
  }

  std::vector<Request> draw_requests() {
    constexpr Opcode kOpcodes[] = {Opcode::kWrite, Opcode::kWriteImm, Opcode::kSendImm,
                                   Opcode::kRead, Opcode::kFetchAdd};
    std::vector<Request> result(6 + rng_.below(20));
    for (Request& request : result) {
      request.opcode = kOpcodes[rng_.below(reliable_ ? 5 : 3)];
      request.bytes =
          request.opcode == Opcode::kFetchAdd ? 8 : kLengths[rng_.below(std::size(kLengths))];
      request.flags = static_cast<std::uint8_t>((rng_.below(3) != 0 ? kSignaled : 0) |
                                                (rng_.below(6) == 0 ? kFence : 0));
      announced_ += request.announces();
    }
    result.back().flags |= kSignaled;
    return result;
  }

  QpOptions draw_options() {
    QpOptions options;
    options.transport = reliable_ ? Transport::kRc : Transport::kUc;
    options.timeout_us = 10 + static_cast<std::uint32_t>(rng_.below(250));
    options.retry_count = static_cast<std::uint32_t>(rng_.below(8));
    options.rnr_retry = static_cast<std::uint32_t>(rng_.below(8));
    options.rnr_timer_us = 10 + static_cast<std::uint32_t>(rng_.below(50));
    options.max_outstanding_reads = 1 + static_cast<std::uint32_t>(rng_.below(16));
    return options;
  }

  bool post(std::size_t i) {
    const Request& request = requests_[i];
    const Sge sge = a_.memory->sge(i * kSlot, request.bytes);
    WorkRequest wanted;
    wanted.wr_id = i;
    wanted.sges = &sge;
    wanted.sge_count = request.bytes > 0 ? 1 : 0;
    wanted.opcode = request.opcode;
    wanted.flags = request.flags;
    wanted.immediate = static_cast<std::uint32_t>(i);
    wanted.compare_add = 1;
    const bool counts = request.opcode == Opcode::kFetchAdd;
    wanted.remote_addr = counts ? counter_->addr() : b_.memory->addr() + i * kSlot;
    wanted.rkey = counts ? counter_->rkey() : b_.memory->rkey();
    return qa_->post({&wanted, 1}).accepted == 1;
  }

  void block() {
    const auto from = static_cast<NodeId>(rng_.below(2));
    world_.cluster.block(from, 1 - from, static_cast<Time>(rng_.below(300)) * kMicrosecond);
  }

  void post_receive() {
    if (receives_ == announced_) return;
    if (qb_->receive(receive_memory_->sge(receives_ * kSlot, kLongest), receives_)) ++receives_;
  }

  void poll() {
    Completion done;
    while (a_.sends->poll({&done, 1}) == 1) {
      // A completion stands for the requests without one in front of it, too.
      for (; completed_ < done.wr_id; ++completed_) {
        Request& silent = requests_[completed_];
        ASSERT_EQ(silent.flags & kSignaled, 0) << "request " << completed_ << " did not complete";
        finish(silent, failed_ > 0 ? Status::kFlushed : Status::kSuccess);
      }
      ASSERT_EQ(done.wr_id, completed_) << "out of order, or twice";
      finish(requests_[completed_++], done.status);
    }
    while (b_.receives->poll({&done, 1}) == 1)
      if (done.status == Status::kSuccess) arrived_.push_back(done);
  }

  void finish(Request& request, Status status) {
    request.done = true;
    request.status = status;
    if (status == Status::kSuccess) {
      EXPECT_EQ(failed_, 0u) << "success behind an error";
      ++successes_;
      return;
    }
    ++failed_;
    const bool allowed = status == Status::kFlushed || status == Status::kRetryExceeded ||
                         (status == Status::kRnrRetryExceeded && request.announces());
    EXPECT_TRUE(allowed) << to_string(request.opcode) << ": " << to_string(status);
    EXPECT_TRUE(reliable_ || status == Status::kFlushed);
  }

  void check() {
    std::uint64_t added = 0, may_add = 0, last_old = 0, announced = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Request& request = requests_[i];
      const bool ok = request.done && request.status == Status::kSuccess;
      announced += ok && request.announces();
      if (request.opcode == Opcode::kFetchAdd) {
        ++may_add;
        if (!ok) continue;
        ++added;
        const std::uint64_t old = *a_.word(i * kSlot);
        EXPECT_GT(old, last_old) << "an answer was given twice";
        last_old = old;
      } else if (ok && request.opcode == Opcode::kRead) {
        for (std::size_t k = 0; k < request.bytes; ++k)
          ASSERT_EQ(a_.memory->data()[i * kSlot + k], answer_byte(k)) << "read " << i;
      } else if (ok && reliable_ && request.opcode != Opcode::kSendImm) {
        EXPECT_TRUE(holds(b_.memory->data() + i * kSlot, i)) << "write " << i;
      }
    }
    const std::uint64_t count = *reinterpret_cast<std::uint64_t*>(counter_->data()) - kFirstCount;
    EXPECT_GE(count, added);
    EXPECT_LE(count, may_add) << "an atomic took effect twice";
    if (reliable_) {
      EXPECT_GE(arrived_.size(), announced) << "a message did not arrive";
    }
    check_arrivals();
  }

  void check_arrivals() {
    std::int64_t last = -1;
    for (const Completion& arrived : arrived_) {
      const std::size_t i = arrived.immediate;
      EXPECT_GT(static_cast<std::int64_t>(i), last) << "out of order, or twice";
      last = static_cast<std::int64_t>(i);
      EXPECT_EQ(arrived.byte_count, requests_[i].bytes);
      const bool sent = arrived.opcode == Opcode::kReceive;
      EXPECT_TRUE(holds(
          sent ? receive_memory_->data() + arrived.wr_id * kSlot : b_.memory->data() + i * kSlot,
          i))
          << "message " << i;
    }
  }

  bool holds(const std::byte* at, std::size_t i) const {
    return std::all_of(at, at + requests_[i].bytes,
                       [i](std::byte byte) { return byte == source_byte(i); });
  }

  Rng rng_;
  bool reliable_, blocks_ = false;
  std::uint64_t announced_ = 0;
  FaultyWorld world_;
  std::vector<Request> requests_;
  Side a_, b_;
  std::unique_ptr<MemoryRegion> receive_memory_, counter_;
  std::unique_ptr<QueuePair> qa_, qb_;
  std::size_t posted_ = 0, completed_ = 0;
  std::uint64_t receives_ = 0, successes_ = 0, failed_ = 0;
  std::vector<Completion> arrived_;
};

TEST(ConnectionFuzz, PromisesHoldUnderFaultsFromManySeeds) {
  std::uint64_t successes = 0, errors = 0, repeated = 0;
  const std::uint64_t seeds = (kSlowed ? 40 : 300) * search_factor();
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ConnectionSearch search(seed);
    search.run();
    if (testing::Test::HasFailure()) return;
    successes += search.successes();
    errors += search.errors() > 0;
    repeated += search.repeated();
  }
  // The search reaches what it is for.
  EXPECT_GT(successes, seeds * 3);
  EXPECT_GT(errors, seeds / 20);
  EXPECT_GT(repeated, seeds);
}

}  // namespace
}  // namespace pyrdma::fuzz
