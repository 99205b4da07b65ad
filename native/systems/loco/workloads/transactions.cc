// loco_transactions: transfers between two accounts under the locks of both (LOCO, section 7.1 and
// figure 4, right).
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/barrier.h"
#include "systems/loco/baselines/mpi_windows.h"
#include "systems/loco/scopes.h"
#include "systems/loco/ticket_lock.h"
#include "systems/loco/workloads/options.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

namespace {

using Int = std::int64_t;

void check(fabric::Status status) {
  if (status == fabric::Status::kSuccess) return;
  throw Error(ErrorCode::kUnavailable,
              std::string("an account cannot be reached (") + to_string(status) + ")", false);
}

/// The state that one thread reuses.
struct TransferState {
  Caller& me;
  std::array<MemRef, 2> balances;
  std::array<AckKey, 2> last;  // writes of the balances
};

class Bank {
 public:
  virtual ~Bank() = default;
  virtual void open(Caller&) {}
  /// Moves `amount` from the first account to the second.
  virtual void transfer(TransferState& state, std::array<std::uint64_t, 2> accounts,
                        std::uint64_t amount) = 0;
  /// Returns the sum of the accounts on this node, modulo 2^64.
  virtual std::uint64_t sum() const = 0;
  virtual std::uint64_t locks() const = 0;

 protected:
  static void move(TransferState& state, std::uint64_t amount) {
    *state.balances[0].as<std::uint64_t>() -= amount;
    *state.balances[1].as<std::uint64_t>() += amount;
  }
};

/// Accounts are words striped over the nodes. An equal number of locks is striped the same way, so
/// an account and its lock have one host, and the pair fence suffices.
class LocoBank final : public Bank {
 public:
  LocoBank(Manager& manager, std::uint64_t accounts, std::uint64_t locks,
           const TicketLockOptions& options, bool by_cpu)
      : locks_(manager, "locks", locks, options),
        accounts_(manager, "accounts", accounts),
        footprint_(manager.env(), by_cpu ? accounts_.local(manager.self(), 0) : nullptr,
                   accounts / manager.nodes() * 8),
        by_cpu_(by_cpu) {}

  void transfer(TransferState& state, std::array<std::uint64_t, 2> at,
                std::uint64_t amount) override {
    const std::array<std::uint64_t, 2> lock = {at[0] % locks_.count(), at[1] % locks_.count()};
    const bool one = lock[0] == lock[1];
    const std::array<Account, 2> accounts = {account(state, at[0], 0), account(state, at[1], 1)};
    for (const Account& account : accounts) {
      if (account.own != nullptr) state.me.env().prefetch(footprint_, account.own);
    }
    locks_.acquire(state.me, std::min(lock[0], lock[1]));
    if (!one) locks_.acquire(state.me, std::max(lock[0], lock[1]));
    for (AckKey& key : state.last) check(key.wait());
    read(state, accounts);
    move(state, amount);
    const bool together = locks_.options().one_doorbell;
    AckKey written;
    if (!together) written = write(state, accounts);
    Requests writes;  // the next release takes these along
    for (std::size_t i = 0; i < 2; ++i) {
      if (accounts[i].own != nullptr) {
        store_release(accounts[i].own, *state.balances[i].as<std::uint64_t>());
      } else if (together) {
        writes.add(fabric::Opcode::kWrite, accounts_.at(accounts[i].host), accounts[i].offset,
                   accounts[i].balance);
      }
      if (one && i == 0) continue;
      state.last[i] = locks_.release(state.me, lock[i], Fence::kPair, writes);
      writes.clear();
    }
    if (!together) state.last[1].unite(std::move(written));
  }
  std::uint64_t sum() const override {
    std::uint64_t sum = 0;
    const std::uint64_t nodes = accounts_.participants().size();
    for (std::uint64_t a = accounts_.self(); a < accounts_.count(); a += nodes) {
      sum += *accounts_.local(a);
    }
    return sum;
  }
  std::uint64_t locks() const override { return locks_.count(); }

 private:
  struct Account {
    NodeId host;
    std::uint64_t offset;
    std::uint64_t* own;  // the word, if this node's CPU works on it
    fabric::Sge balance;
  };
  Account account(TransferState& state, std::uint64_t index, std::size_t i) {
    const NodeId host = accounts_.host_of(index);
    const std::uint64_t offset = accounts_.offset_of(index);
    return {host, offset, by_cpu_ ? accounts_.local(host, offset) : nullptr,
            state.balances[i].sge(8)};
  }
  /// Reads the accounts into the balances; with one doorbell, if the switch is on and both accounts
  /// are at one host.
  void read(TransferState& state, const std::array<Account, 2>& accounts) {
    Requests reads;
    AckKey key;
    for (std::size_t i = 0; i < 2; ++i) {
      const Account& account = accounts[i];
      if (account.own != nullptr) {
        state.me.env().charge_walk(footprint_, account.own);
        *state.balances[i].as<std::uint64_t>() = load_acquire(account.own);
        continue;
      }
      reads.add(fabric::Opcode::kRead, accounts_.at(account.host), account.offset, account.balance);
      if (i == 0 && locks_.options().one_doorbell && accounts[1].own == nullptr &&
          accounts[1].host == account.host) {
        continue;
      }
      state.me.post(account.host, reads.span(), key);
      reads.clear();
    }
    check(key.wait());
  }

  /// Writes the accounts that go through the NIC, with a doorbell for each.
  [[gnu::noinline]] AckKey write(TransferState& state, const std::array<Account, 2>& accounts) {
    AckKey key;
    for (const auto& [host, offset, own, balance] : accounts) {
      if (own == nullptr) state.me.write(host, accounts_.at(host), offset, balance, key);
    }
    return key;
  }

  TicketLocks locks_;
  AtomicVars accounts_;
  Footprint footprint_;  // of this node's accounts
  bool by_cpu_;
};

/// Accounts are spread over windows, then over ranks. Each rank's part of a window has one lock.
class MpiBank final : public Bank {
 public:
  MpiBank(Manager& manager, const MpiWindowsOptions& options)
      : windows_(manager, "mpi", options), options_(options) {}

  void open(Caller& me) override { windows_.open(me); }
  void transfer(TransferState& state, std::array<std::uint64_t, 2> at,
                std::uint64_t amount) override {
    const std::array<Place, 2> place = {place_of(at[0]), place_of(at[1])};
    const bool one = place[0].lock() == place[1].lock();
    const std::size_t first = place[1].lock() < place[0].lock() ? 1 : 0;
    windows_.lock(state.me, place[first].window, place[first].rank);
    if (!one) windows_.lock(state.me, place[1 - first].window, place[1 - first].rank);
    AckKey read;
    for (std::size_t i = 0; i < 2; ++i) {
      read.unite(windows_.get(state.me, place[i].window, place[i].rank, place[i].offset,
                              state.balances[i]));
    }
    check(read.wait());
    move(state, amount);
    std::array<AckKey, 2> written;
    for (std::size_t i = 0; i < 2; ++i) {
      written[i] = windows_.put(state.me, place[i].window, place[i].rank, place[i].offset,
                                state.balances[i]);
    }
    if (one) {
      written[0].unite(std::move(written[1]));
      windows_.unlock(state.me, place[0].window, place[0].rank, std::move(written[0]));
      return;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      windows_.unlock(state.me, place[i].window, place[i].rank, std::move(written[i]));
    }
  }
  std::uint64_t sum() const override {
    std::uint64_t sum = 0;
    for (std::uint32_t window = 0; window < options_.windows; ++window) {
      for (std::uint32_t caller = 0; caller < options_.ranks; ++caller) {
        const auto* words = reinterpret_cast<const std::uint64_t*>(windows_.local(window, caller));
        for (std::uint64_t i = 0; i < options_.bytes / 8; ++i) sum += words[i];
      }
    }
    return sum;
  }
  std::uint64_t locks() const override {
    return std::uint64_t{windows_.windows()} * windows_.ranks();
  }

 private:
  struct Place {
    std::uint32_t window, rank;
    std::uint64_t offset;
    std::pair<std::uint32_t, std::uint32_t> lock() const { return {window, rank}; }
  };
  Place place_of(std::uint64_t account) const {
    const std::uint64_t part = account / windows_.windows();
    return {static_cast<std::uint32_t>(account % windows_.windows()),
            static_cast<std::uint32_t>(part % windows_.ranks()), part / windows_.ranks() * 8};
  }
  MpiWindows windows_;
  MpiWindowsOptions options_;
};

class LocoTransactions final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = with_runtime_parameters(with_preset({
        {"system",
         std::string("loco"),
         "",
         "LOCO's ticket locks and atomic_vars, or a model of MPI's windows",
         0,
         0,
         {"loco", "mpi_windows"}},
        {"accounts", Int{1'000'000}, "count", "accounts of all nodes together, 8 bytes each", 2,
         1e11},
        {"locks_per_thread", Int{341}, "count",
         "locks for each thread; mpi_windows: windows, of which every rank has one lock", 1,
         1 << 20},
        {"merged",
         Int{0},
         "bool",
         "windows share one registration, which tells what one of its own costs",
         0,
         1,
         {},
         "mpi_windows"},
        own_memory_parameter(),
    }));
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const std::uint32_t threads = params.count("threads");
    const auto accounts = static_cast<std::uint64_t>(params.integer("accounts"));
    Manager manager(env, loco_options(params));
    const std::unique_ptr<Bank> bank = make(manager, params);
    AtomicVars sum(manager, "sum", 1);
    Barrier barrier(manager, "bar");
    manager.wait_for_ready();
    bank->open(manager.caller(0));
    barrier.wait(manager.caller(0));
    recorder.prepare_threads(threads);
    const measure::Interval common(env.now(), params);
    const auto body = [&](std::uint32_t i) {
      Caller& me = manager.caller(i);
      measure::Histogram& latency = recorder.thread(i).histogram("transaction");
      Rng rng = env.rng("loco_transactions/" + std::to_string(i));
      TransferState state{me, {me.block(8), me.block(8)}, {}};
      measure::Interval interval = common;
      for (Time begin = env.now(); !interval.over(begin);) {
        const Scope step(env, scope::transfer);
        const std::uint64_t from = rng.below(accounts);
        const std::uint64_t to = (from + 1 + rng.below(accounts - 1)) % accounts;
        bank->transfer(state, {from, to}, rng.below(1000));
        const Time end = env.now();
        if (interval.count(end)) latency.record(end - begin);
        begin = end;
      }
      for (AckKey& key : state.last) check(key.wait());
      interval.add_rates(recorder.thread(i));
    };
    measure::on_threads(env, threads, body);
    barrier.wait(manager.caller(0));
    sum.fetch_add(manager.caller(0), 0, bank->sum());
    barrier.wait(manager.caller(0));
    if (env.node() == 0) {
      recorder.add("locks_per_thread", "count",
                   static_cast<double>(bank->locks()) /
                       static_cast<double>(std::uint64_t{threads} * env.nodes()));
      const std::uint64_t all = sum.load(manager.caller(0), 0);
      if (all != 0) {
        throw Error(ErrorCode::kInternal, "the sum of all accounts went from 0 to " +
                                              std::to_string(static_cast<Int>(all)) +
                                              ": a transfer was lost, the locks did not exclude");
      }
    }
    barrier.wait(manager.caller(0));
    manager.leave();
  }

 private:
  static std::unique_ptr<Bank> make(Manager& manager, const measure::Params& params) {
    const std::uint32_t threads = params.count("threads");
    const auto accounts = static_cast<std::uint64_t>(params.integer("accounts"));
    const std::uint32_t locks = params.count("locks_per_thread");
    const std::uint64_t all = std::uint64_t{locks} * threads * manager.nodes();
    if (params.text("system") == "loco") {
      return std::make_unique<LocoBank>(manager, accounts, all, lock_options(params),
                                        by_cpu(params));
    }
    MpiWindowsOptions options;
    options.windows = locks;
    options.ranks = threads;
    options.bytes = (accounts + all - 1) / all * 8;
    options.merged = params.flag("merged");
    return std::make_unique<MpiBank>(manager, options);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_transactions() {
  return std::make_unique<LocoTransactions>();
}

}  // namespace pyrdma::loco
