// Locked memory and huge pages, on a real device. The tests run only if PYRDMA_TEST_VERBS is set.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/error_test.h"
#include "fabric/contract_worlds_test.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Takes from this thread the right to lock any amount of memory, and limits the amount.
class LockedMemory {
 public:
  explicit LockedMemory(rlim_t bytes) {
    ::syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~(1U << CAP_IPC_LOCK);
    changed_ = ::syscall(SYS_capset, &header_, less) == 0;
    ::getrlimit(RLIMIT_MEMLOCK, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    changed_ = changed_ && ::setrlimit(RLIMIT_MEMLOCK, &small) == 0;
  }
  ~LockedMemory() {
    ::setrlimit(RLIMIT_MEMLOCK, &limit_);
    ::syscall(SYS_capset, &header_, before_);
  }
  bool changed() const { return changed_; }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2]{};
  rlimit limit_{};
  bool changed_ = false;
};

/// Sets the kernel's number of reserved huge pages, and restores it in the destructor.
class ReservedPages {
 public:
  ReservedPages() { std::ifstream(kFile) >> before_; }
  ~ReservedPages() { reserve(before_); }
  bool reserve(int pages) {
    std::ofstream(kFile) << pages << std::flush;
    int now = -1;
    std::ifstream(kFile) >> now;
    return now == pages;
  }

 private:
  static constexpr const char* kFile = "/proc/sys/vm/nr_hugepages";
  int before_ = 0;
};

/// Returns the size in bytes of the pages that hold `address`, from the kernel's list.
std::size_t page_bytes(std::uint64_t address) {
  std::ifstream list("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(list, line);) {
    std::istringstream fields(line);
    std::uint64_t begin = 0, end = 0;
    char dash = 0;
    if (fields >> std::hex >> begin >> dash >> end && dash == '-')
      here = begin <= address && address < end;
    if (here && line.rfind("KernelPageSize:", 0) == 0)
      return std::stoull(line.substr(line.find(':') + 1)) * 1024;
  }
  return 0;
}

struct VerbsMemory : testing::Test {
  void SetUp() override {
    if (std::getenv("PYRDMA_TEST_VERBS") == nullptr)
      GTEST_SKIP() << "PYRDMA_TEST_VERBS is not set: no device is to be used";
    cluster = std::make_unique<VerbsWorld>(1);
    domain = cluster->env(0).device().create_protection_domain();
  }
  Device& device() { return cluster->env(0).device(); }
  std::unique_ptr<VerbsWorld> cluster;
  std::unique_ptr<ProtectionDomain> domain;
};

TEST_F(VerbsMemory, TheLimitOfLockedMemoryIsNamedBeforeItIsMet) {
  const LockedMemory limited(65536);
  if (!limited.changed()) GTEST_SKIP() << "the limit cannot be changed here";
  const auto fits = device().allocate(*domain, 32768);
  EXPECT_TRUE(refuses([&] { device().allocate(*domain, 32769); }, ErrorCode::kExhausted,
                      {"69632", "65536", "limits.conf"}));
  EXPECT_NO_THROW(device().allocate(*domain, 32768)) << "refused memory does not count";
}

TEST_F(VerbsMemory, HugePagesWhenThereAreAnyAndAWordWhenNot) {
  ReservedPages pages;
  if (!pages.reserve(2)) GTEST_SKIP() << "huge pages cannot be reserved here";
  {
    const auto region = device().allocate(*domain, kHugePage + 1);
    EXPECT_EQ(page_bytes(region->addr()), kHugePage);
    EXPECT_TRUE(device().notices().empty());
    const auto small = device().allocate(*domain, 4096);
    EXPECT_EQ(page_bytes(small->addr()), 4096u);
  }
  ASSERT_TRUE(pages.reserve(0));
  const auto first = device().allocate(*domain, kHugePage);
  const auto second = device().allocate(*domain, 2 * kHugePage);
  EXPECT_EQ(page_bytes(first->addr()), 4096u);
  const std::vector<Notice> notices = device().notices();
  ASSERT_EQ(notices.size(), 1u) << "once, not for each region";
  EXPECT_TRUE(names(notices[0].text, {"vm.nr_hugepages"}));
  EXPECT_FALSE(notices[0].is_fault);
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
