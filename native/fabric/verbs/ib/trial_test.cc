// What a device has, found by trying. The devices are doubles: tables of functions that answer as
// the drivers' sources say.
#include "fabric/verbs/ib/trial.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "base/error_test.h"

namespace pyrdma::fabric::verbs {
namespace {

/// What a driver makes, and its objects. The functions of a Library have no state of their own.
struct Driver {
  bool rc = true, uc = true, ud = true;
  std::uint32_t most_inline = 1024, most_inline_of_datagrams = 1024;
  int refusal = EOPNOTSUPP;
  int living = 0;  // objects
};
Driver driver;
ibv_pd domain;
ibv_cq queue;
ibv_qp pair;

bool is_made(const ibv_qp_init_attr& wanted) {
  const bool is_datagram = wanted.qp_type == IBV_QPT_UD;
  const bool is_there = is_datagram                    ? driver.ud
                        : wanted.qp_type == IBV_QPT_UC ? driver.uc
                                                       : driver.rc;
  return is_there && wanted.cap.max_inline_data <=
                         (is_datagram ? driver.most_inline_of_datagrams : driver.most_inline);
}

class VerbsTrial : public testing::Test {
 protected:
  void SetUp() override {
    driver = {};
    if (const std::string problem = library_problem(); !problem.empty()) GTEST_SKIP() << problem;
    library_.emplace(Library::get());
    library_->alloc_pd = [](ibv_context*) { return ++driver.living, &domain; };
    library_->dealloc_pd = [](ibv_pd*) { return --driver.living, 0; };
    library_->create_cq = [](ibv_context*, int, void*, ibv_comp_channel*, int) {
      return ++driver.living, &queue;
    };
    library_->destroy_cq = [](ibv_cq*) { return --driver.living, 0; };
    library_->create_qp = [](ibv_pd*, ibv_qp_init_attr* wanted) -> ibv_qp* {
      if (is_made(*wanted)) return ++driver.living, &pair;
      errno = driver.refusal;
      return nullptr;
    };
    library_->destroy_qp = [](ibv_qp*) { return --driver.living, 0; };
    attributes_.max_qp_wr = 1000;
    attributes_.max_cqe = 5000;
    attributes_.max_sge = 30;
    attributes_.max_qp_rd_atom = attributes_.max_qp_init_rd_atom = 16;
    attributes_.atomic_cap = IBV_ATOMIC_HCA;
  }
  void TearDown() override { EXPECT_EQ(driver.living, 0) << "objects are left"; }

  Capabilities found() {
    Capabilities capabilities;
    read_queue_capabilities(attributes_, Trial(*library_, nullptr), &capabilities);
    return capabilities;
  }
  std::string lacks() { return lacking(Trial(*library_, nullptr)); }

  std::optional<Library> library_;
  ibv_device_attr attributes_{};
};

TEST_F(VerbsTrial, ADeviceOfAllTransportsHasThem) {
  const Capabilities has = found();
  EXPECT_TRUE(has.rc && has.uc && has.ud && has.atomics);
  EXPECT_EQ(has.max_inline, 1024u);
  EXPECT_EQ(lacks(), "");
}

TEST_F(VerbsTrial, ADeviceWithoutUnreliableConnectionsSaysSo) {
  driver.uc = false;
  for (const int refusal : {EOPNOTSUPP, EINVAL, ENOSYS}) {
    driver.refusal = refusal;
    const Capabilities has = found();
    EXPECT_TRUE(has.rc && has.ud);
    EXPECT_FALSE(has.uc);
    EXPECT_EQ(has.max_inline, 1024u) << "of the others";
    EXPECT_EQ(lacks(), "");
  }
}

TEST_F(VerbsTrial, ADeviceWithoutReliableConnectionsIsNoCandidate) {
  driver.rc = driver.uc = false;
  EXPECT_TRUE(names(lacks(), {"RC", "EFA", "shm", "sim"}));
  EXPECT_FALSE(found().rc);
  EXPECT_FALSE(found().atomics) << "they need RC";
}

TEST_F(VerbsTrial, InlineBytesAreThoseThatEveryTransportTakes) {
  driver.most_inline = 300;
  driver.most_inline_of_datagrams = 200;
  EXPECT_EQ(found().max_inline, 192u);
  driver.ud = false;
  EXPECT_EQ(found().max_inline, 256u);
  driver.most_inline = 0;
  EXPECT_EQ(found().max_inline, 0u);
}

TEST_F(VerbsTrial, SharedQueuesBoundTheOthersOnlyWhereTheyAre) {
  attributes_.max_srq_wr = 100;
  attributes_.max_srq_sge = 3;
  EXPECT_FALSE(found().srq);
  EXPECT_EQ(found().max_queue_entries, 1000u);
  EXPECT_EQ(found().max_sges, 30u);
  attributes_.max_srq = 1;
  EXPECT_TRUE(found().srq);
  EXPECT_EQ(found().max_queue_entries, 100u);
  EXPECT_EQ(found().max_sges, 3u);
  attributes_.max_srq_sge = 0;
  EXPECT_FALSE(found().srq) << "a queue of receives without buffers";
}

TEST_F(VerbsTrial, AtomicsAndPiecesOfReadsAreAsked) {
  attributes_.atomic_cap = IBV_ATOMIC_NONE;
  attributes_.max_sge_rd = 2;
  EXPECT_FALSE(found().atomics);
  EXPECT_EQ(found().max_sges, 2u);
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
