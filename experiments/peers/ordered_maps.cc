// Ordered maps of a million keys of 8 bytes under one reader and one writer, each on a CPU of its
// own.
//
//   ordered_maps MAP TEST SECONDS
//
// MAP: lmdb (a transaction per operation, in /dev/shm), lmdb_in_place (the same with MDB_WRITEMAP),
// tbb (oneTBB's concurrent_map), or locked (std::map under a std::shared_mutex). TEST, with the
// lines that it prints:
//
//   gets    get_rate, put_rate    random gets beside random puts
//   scans   scan_rate             random scans of 128 keys beside random puts
//   mixed   mixed_scan_rate       scans that no moment explains, while puts go round 128 keys
#include <lmdb.h>
#include <oneapi/tbb/concurrent_map.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::uint64_t kKeys = 1'000'000;
constexpr std::uint64_t kScan = 128;
constexpr std::uint64_t kStride = 0x9E3779B97F4A7C15;  // odd: the keys are a permutation

std::uint64_t key_of(std::uint64_t i) { return i * kStride; }

void require(bool is_true, const char* what) {
  if (is_true) return;
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

struct Span {
  std::uint64_t count = 0, least = ~std::uint64_t{0}, most = 0;
  void add(std::uint64_t value) {
    ++count;
    least = value < least ? value : least;
    most = value > most ? value : most;
  }
};

class Locked {
 public:
  void load() {
    for (std::uint64_t i = 0; i < kKeys; ++i) map_[key_of(i)] = 0;
  }
  void put(std::uint64_t key, std::uint64_t value) {
    const std::unique_lock lock(mutex_);
    map_[key] = value;
  }
  class Reader {
   public:
    explicit Reader(Locked& of) : of_(of) {}
    std::uint64_t get(std::uint64_t key) {
      const std::shared_lock lock(of_.mutex_);
      return of_.map_.find(key)->second;
    }
    Span scan(std::uint64_t first) {
      const std::shared_lock lock(of_.mutex_);
      Span span;
      for (auto at = of_.map_.lower_bound(first); at != of_.map_.end() && span.count < kScan; ++at)
        span.add(at->second);
      return span;
    }

   private:
    Locked& of_;
  };

 private:
  std::shared_mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> map_;
};

class Tbb {
 public:
  void load() {
    for (std::uint64_t i = 0; i < kKeys; ++i) map_.emplace(key_of(i), 0);
  }
  void put(std::uint64_t key, std::uint64_t value) {
    const auto [at, is_new] = map_.emplace(key, value);
    if (!is_new) at->second.store(value, std::memory_order_release);
  }
  class Reader {
   public:
    explicit Reader(Tbb& of) : of_(of) {}
    std::uint64_t get(std::uint64_t key) {
      return of_.map_.find(key)->second.load(std::memory_order_acquire);
    }
    Span scan(std::uint64_t first) {
      Span span;
      for (auto at = of_.map_.lower_bound(first); at != of_.map_.end() && span.count < kScan; ++at)
        span.add(at->second.load(std::memory_order_acquire));
      return span;
    }

   private:
    Tbb& of_;
  };

 private:
  oneapi::tbb::concurrent_map<std::uint64_t, std::atomic<std::uint64_t>> map_;
};

// `kFlags`: MDB_WRITEMAP writes pages in place, or 0.
template <unsigned kFlags>
class Lmdb {
 public:
  Lmdb() {
    char folder[] = "/dev/shm/pyrdma-ordered-maps-XXXXXX";
    require(::mkdtemp(folder) != nullptr, "no folder in /dev/shm");
    require(mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, std::size_t{1} << 30) == 0,
            "mdb_env_create failed");
    const int opened =
        mdb_env_open(env_, folder, MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD | kFlags, 0600);
    for (const char* name : {"/data.mdb", "/lock.mdb"})
      ::unlink((folder + std::string(name)).c_str());
    ::rmdir(folder);
    require(opened == 0, "mdb_env_open failed");
    MDB_txn* txn = begin(0);
    require(mdb_dbi_open(txn, nullptr, MDB_INTEGERKEY | MDB_CREATE, &dbi_) == 0,
            "mdb_dbi_open failed");
    require(mdb_txn_commit(txn) == 0, "mdb_txn_commit failed");
  }
  void load() {
    MDB_txn* txn = begin(0);
    for (std::uint64_t i = 0; i < kKeys; ++i) put_in(txn, key_of(i), 0);
    require(mdb_txn_commit(txn) == 0, "mdb_txn_commit failed");
  }
  void put(std::uint64_t key, std::uint64_t value) {
    MDB_txn* txn = begin(0);
    put_in(txn, key, value);
    require(mdb_txn_commit(txn) == 0, "mdb_txn_commit failed");
  }
  class Reader {
   public:
    explicit Reader(Lmdb& of) : of_(of), txn_(of.begin(MDB_RDONLY)) {
      require(mdb_cursor_open(txn_, of.dbi_, &cursor_) == 0, "mdb_cursor_open failed");
      mdb_txn_reset(txn_);
    }
    ~Reader() {
      mdb_cursor_close(cursor_);
      mdb_txn_abort(txn_);
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    std::uint64_t get(std::uint64_t key) {
      require(mdb_txn_renew(txn_) == 0, "mdb_txn_renew failed");
      MDB_val name{sizeof key, &key}, value{};
      require(mdb_get(txn_, of_.dbi_, &name, &value) == 0, "mdb_get failed");
      const std::uint64_t found = read(value);
      mdb_txn_reset(txn_);
      return found;
    }
    Span scan(std::uint64_t first) {
      require(mdb_txn_renew(txn_) == 0 && mdb_cursor_renew(txn_, cursor_) == 0, "renew failed");
      MDB_val name{sizeof first, &first}, value{};
      Span span;
      int found = mdb_cursor_get(cursor_, &name, &value, MDB_SET_RANGE);
      for (; found == 0 && span.count < kScan;
           found = mdb_cursor_get(cursor_, &name, &value, MDB_NEXT))
        span.add(read(value));
      mdb_txn_reset(txn_);
      return span;
    }

   private:
    static std::uint64_t read(const MDB_val& value) {
      std::uint64_t word = 0;
      std::memcpy(&word, value.mv_data, sizeof word);
      return word;
    }
    Lmdb& of_;
    MDB_txn* txn_;
    MDB_cursor* cursor_ = nullptr;
  };

 private:
  MDB_txn* begin(unsigned how) {
    MDB_txn* txn = nullptr;
    require(mdb_txn_begin(env_, nullptr, how, &txn) == 0, "mdb_txn_begin failed");
    return txn;
  }
  void put_in(MDB_txn* txn, std::uint64_t key, std::uint64_t value) {
    MDB_val name{sizeof key, &key}, data{sizeof value, &value};
    require(mdb_put(txn, dbi_, &name, &data, 0) == 0, "mdb_put failed");
  }
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
};

void pin(int which) {
  cpu_set_t allowed, one;
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || which-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    return;
  }
}

using Clock = std::chrono::steady_clock;

template <class Map>
void measure(const std::string& test, double seconds) {
  Map map;
  map.load();
  std::vector<std::uint64_t> around;  // the keys of the test `mixed`: neighbours
  const bool mixed = test == "mixed";
  for (std::uint64_t i = 0; i < kScan; ++i) around.push_back(~std::uint64_t{0} - kScan + 1 + i);
  if (mixed) {
    for (std::uint64_t i = 0; i < kScan; ++i) map.put(around[i], i);
  }
  std::atomic<bool> stopping{false};
  std::uint64_t puts = 0;
  double writing = 0;
  std::thread writer([&] {
    pin(1);
    std::mt19937_64 random(2);
    const auto begin = Clock::now();
    for (; !stopping.load(std::memory_order_relaxed); ++puts) {
      if (mixed)
        map.put(around[puts % kScan], puts + kScan);
      else
        map.put(key_of(random() % kKeys), puts);
    }
    writing = std::chrono::duration<double>(Clock::now() - begin).count();
  });
  pin(0);
  typename Map::Reader reader(map);
  std::mt19937_64 random(1);
  std::uint64_t done = 0, mixed_scans = 0, sum = 0;
  const auto begin = Clock::now();
  double reading = 0;
  for (; reading < seconds; ++done) {
    if (test == "gets") {
      sum += reader.get(key_of(random() % kKeys));
    } else {
      const Span span = reader.scan(mixed ? around[0] : key_of(random() % kKeys));
      sum += span.most;
      mixed_scans += span.count != kScan || span.most - span.least != kScan - 1;
    }
    if (done % 64 == 0) reading = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  stopping = true;
  writer.join();
  require(sum != 1, "");  // keeps the reads
  const double rate = static_cast<double>(done) / reading;
  if (test == "gets")
    std::printf("get_rate %.6g\nput_rate %.6g\n", rate, static_cast<double>(puts) / writing);
  else if (mixed)
    std::printf("mixed_scan_rate %.6g\n", static_cast<double>(mixed_scans) / reading);
  else
    std::printf("scan_rate %.6g\n", rate);
}

}  // namespace

int main(int argc, char** argv) {
  require(argc == 4, "usage: ordered_maps lmdb|lmdb_in_place|tbb|locked gets|scans|mixed SECONDS");
  const std::string map = argv[1], test = argv[2];
  require(test == "gets" || test == "scans" || test == "mixed", "unknown test");
  const double seconds = std::atof(argv[3]);
  if (map == "lmdb")
    measure<Lmdb<0>>(test, seconds);
  else if (map == "lmdb_in_place")
    measure<Lmdb<MDB_WRITEMAP>>(test, seconds);
  else if (map == "tbb")
    measure<Tbb>(test, seconds);
  else if (map == "locked")
    measure<Locked>(test, seconds);
  else
    require(false, "unknown map");
  return 0;
}
