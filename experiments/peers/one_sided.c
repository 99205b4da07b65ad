/* One-sided operations of MPI between two ranks of one machine, each rank pinned to a CPU of its
 * own.
 *
 *   one_sided SECONDS NAME...
 *
 * prints "NAME VALUE" per measurement, in operations per second or in seconds. Rank 0 is the
 * origin, rank 1 the target. While rank 0 measures, rank 1 waits in a barrier, as MPI programs do.
 * In contended_lock_rate and transaction_rate both ranks work, and the value is their sum.
 * Rank 0 sends requests in windows of kWindow and ends each by MPI_Win_flush, MPI's completion. An
 * operation counts once it is known to be complete at the target, as a work request counts once its
 * completion has been polled.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWindow = 64, kTarget = 1, kRegionBytes = 4096 };

static MPI_Win window;
static char* base;
static char local[64 * kWindow];

static void pin(int rank) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != rank) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

static void puts_of(int bytes) {
  for (int i = 0; i < kWindow; ++i) {
    MPI_Put(local, bytes, MPI_BYTE, kTarget, 0, bytes, MPI_BYTE, window);
  }
  MPI_Win_flush(kTarget, window);
}

static void put_8(void) { puts_of(8); }
static void put_64(void) { puts_of(64); }

static void get_8(void) {
  for (int i = 0; i < kWindow; ++i) {
    MPI_Get(local + 8 * i, 8, MPI_BYTE, kTarget, 0, 8, MPI_BYTE, window);
  }
  MPI_Win_flush(kTarget, window);
}

static void fetch_add_8(void) {
  const uint64_t one = 1;
  for (int i = 0; i < kWindow; ++i) {
    MPI_Fetch_and_op(&one, local + 8 * i, MPI_UINT64_T, kTarget, 0, MPI_SUM, window);
  }
  MPI_Win_flush(kTarget, window);
}

/* One operation per flush: the latency of a chain of dependent operations. */
static void get_8_flushed(void) {
  MPI_Get(local, 8, MPI_BYTE, kTarget, 0, 8, MPI_BYTE, window);
  MPI_Win_flush(kTarget, window);
}

static void lock_unlock(void) {
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kTarget, 0, window);
  MPI_Win_unlock(kTarget, window);
}

struct Measurement {
  const char* name;
  void (*turn)(void);
  int operations; /* per iteration */
  int needs_epoch;
  int is_latency;
};

static const struct Measurement kMeasurements[] = {
    {"put_rate_8", put_8, kWindow, 1, 0},      {"put_rate_64", put_64, kWindow, 1, 0},
    {"get_rate_8", get_8, kWindow, 1, 0},      {"fetch_add_rate_8", fetch_add_8, kWindow, 1, 0},
    {"get_latency_8", get_8_flushed, 1, 1, 1}, {"lock_rate", lock_unlock, 1, 0, 0},
};

static void measure(const struct Measurement* what, int rank, double seconds) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    if (what->needs_epoch) MPI_Win_lock_all(0, window);
    for (int i = 0; i < 1000; ++i) what->turn();
    double turns = 0;
    const double start = MPI_Wtime();
    double elapsed = 0;
    while (elapsed < seconds) {
      for (int i = 0; i < 200; ++i) what->turn();
      turns += 200;
      elapsed = MPI_Wtime() - start;
    }
    if (what->needs_epoch) MPI_Win_unlock_all(window);
    const double operations = turns * what->operations;
    printf("%s %.9g\n", what->name, what->is_latency ? elapsed / operations : operations / elapsed);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Both ranks take part, so they must agree on the number of rounds beforehand. */
static void measure_barrier(int rank, double seconds) {
  const int kTrial = 500;
  int rounds = kTrial;
  double elapsed = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < rounds; ++i) MPI_Barrier(MPI_COMM_WORLD);
    elapsed = MPI_Wtime() - start;
    if (attempt == 0) {
      rounds = (int)(kTrial * seconds / elapsed) + kTrial;
      MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
  }
  if (rank == 0) printf("barrier_latency %.9g\n", elapsed / rounds);
}

/* Runs `turn` on both ranks for `seconds`; returns the turns of both together. */
static double both(void (*turn)(void), double seconds, double* elapsed) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  double turns = 0;
  double all = 0;
  *elapsed = 0;
  while (*elapsed < seconds) {
    for (int i = 0; i < 20; ++i) turn();
    turns += 20;
    *elapsed = MPI_Wtime() - start;
  }
  MPI_Allreduce(&turns, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/* Increments a word of rank 0 under its lock. */
static void add_under_lock(void) {
  uint64_t word = 0;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
  MPI_Get(&word, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
  MPI_Win_flush(0, window);
  ++word;
  MPI_Put(&word, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
  MPI_Win_unlock(0, window);
}

static void measure_contended_lock(int rank, double seconds) {
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    memset(base, 0, 8);
    MPI_Win_unlock(0, window);
  }
  double elapsed = 0;
  const double turns = both(add_under_lock, seconds, &elapsed);
  uint64_t counted = 0;
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  MPI_Get(&counted, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, window);
  MPI_Win_unlock(0, window);
  if ((double)counted != turns) {
    fprintf(stderr, "one_sided: counted %.0f of %.0f\n", (double)counted, turns);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  if (rank == 0) printf("contended_lock_rate %.9g\n", turns / elapsed);
}

/* Transfers between two of a million accounts, which are spread over windows, then over ranks. The
 * part of a window at one rank has one lock. A rank takes the lower lock first. */
enum { kWindows = 341, kAccounts = 1000000, kRanks = 2 };
enum { kEach = (kAccounts + kWindows * kRanks - 1) / (kWindows * kRanks) };
static MPI_Win windows[kWindows];
static uint64_t* parts[kWindows];
static uint64_t random_state;

static uint64_t draw(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % below;
}

static void transfer(void) {
  const uint64_t from = draw(kAccounts);
  const uint64_t to = (from + 1 + draw(kAccounts - 1)) % kAccounts;
  const uint64_t amount = draw(1000);
  const uint64_t account[2] = {from, to};
  MPI_Win win[2];
  int lock[2], target[2], place[2];
  uint64_t balance[2];
  for (int i = 0; i < 2; ++i) {
    const uint64_t part = account[i] / kWindows;
    win[i] = windows[account[i] % kWindows];
    target[i] = (int)(part % kRanks);
    place[i] = (int)(part / kRanks);
    lock[i] = (int)(account[i] % kWindows) * kRanks + target[i];
  }
  const int first = lock[1] < lock[0];
  const int locks = lock[0] == lock[1] ? 1 : 2;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target[first], 0, win[first]);
  if (locks == 2) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target[!first], 0, win[!first]);
  for (int i = 0; i < 2; ++i) {
    MPI_Get(&balance[i], 8, MPI_BYTE, target[i], place[i], 8, MPI_BYTE, win[i]);
  }
  for (int i = 0; i < locks; ++i) MPI_Win_flush(target[i], win[i]);
  balance[0] -= amount;
  balance[1] += amount;
  for (int i = 0; i < 2; ++i) {
    MPI_Put(&balance[i], 8, MPI_BYTE, target[i], place[i], 8, MPI_BYTE, win[i]);
  }
  for (int i = 0; i < locks; ++i) MPI_Win_unlock(target[i], win[i]);
}

static void measure_transactions(int rank, double seconds) {
  random_state = 88172645463325252ULL + (uint64_t)rank;
  for (int w = 0; w < kWindows; ++w) {
    MPI_Win_allocate(8 * kEach, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &parts[w], &windows[w]);
    memset(parts[w], 0, 8 * kEach);
  }
  double elapsed = 0;
  const double turns = both(transfer, seconds, &elapsed);
  uint64_t sum = 0;
  uint64_t all = 0;
  for (int w = 0; w < kWindows; ++w) {
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, windows[w]);
    for (int i = 0; i < kEach; ++i) sum += parts[w][i];
    MPI_Win_unlock(rank, windows[w]);
  }
  MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (all != 0) {
    fprintf(stderr, "one_sided: the sum of the accounts has changed\n");
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  for (int w = 0; w < kWindows; ++w) MPI_Win_free(&windows[w]);
  if (rank == 0) printf("transaction_rate %.9g\n", turns / elapsed);
}

static void measure_named(const char* name, int rank, double seconds) {
  if (strcmp(name, "contended_lock_rate") == 0) {
    measure_contended_lock(rank, seconds);
    return;
  }
  if (strcmp(name, "transaction_rate") == 0) {
    measure_transactions(rank, seconds);
    return;
  }
  if (strcmp(name, "barrier_latency") == 0) {
    measure_barrier(rank, seconds);
    return;
  }
  for (size_t i = 0; i < sizeof kMeasurements / sizeof *kMeasurements; ++i) {
    if (strcmp(name, kMeasurements[i].name) == 0) {
      measure(&kMeasurements[i], rank, seconds);
      return;
    }
  }
  fprintf(stderr, "one_sided: unknown measurement '%s'\n", name);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != 2 || argc < 3) {
    fprintf(stderr, "usage: one_sided SECONDS NAME... with 2 ranks; there are %d ranks\n", ranks);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  pin(rank);
  MPI_Win_allocate(kRegionBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  memset(base, 0, kRegionBytes);
  for (int i = 2; i < argc; ++i) measure_named(argv[i], rank, strtod(argv[1], NULL));
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
