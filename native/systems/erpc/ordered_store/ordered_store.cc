#include "systems/erpc/ordered_store/ordered_store.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint64_t kMostKeys = std::uint64_t{1} << 32;
constexpr std::uint32_t kMostReaders = 4096;
// An entry takes 26 bytes of a page. A page of random keys is two thirds full.
constexpr std::uint64_t kEntryBytes = 26, kBytesPerKey = 40;
// Address space: pages half full, and twice for the copies that one transaction makes. The rest is
// for the pages that change while a reader that lost its core still needs their old copies. Only
// the pages in use take memory.
constexpr std::uint64_t kMapBytesPerKey = 4 * kEntryBytes, kLeastMapBytes = 256 * kMiB;
constexpr std::size_t kCommitBytes = 4 * 4096;  // a page for each level of the tree
// Cache lines of a leaf that the search for a key touches. The pages above it are in the caches.
constexpr int kLeafLines = 6;

// LMDB's files in a new folder. The names go away with the object; an open environment keeps its
// files.
class MapFolder {
 public:
  MapFolder() {
    if (::mkdtemp(path_) == nullptr)
      throw Error(ErrorCode::kUnavailable, std::string("ordered store: no folder in /dev/shm: ") +
                                               std::strerror(errno) + "; make it writable");
  }
  ~MapFolder() {
    for (const char* name : {"/data.mdb", "/lock.mdb"})
      ::unlink((path_ + std::string(name)).c_str());
    ::rmdir(path_);
  }
  MapFolder(const MapFolder&) = delete;
  MapFolder& operator=(const MapFolder&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/dev/shm/pyrdma-store-XXXXXX";
};

Lmdb::Value as_value(const std::uint64_t& word) {
  return {sizeof word, const_cast<std::uint64_t*>(&word)};  // LMDB does not write to it
}

std::uint64_t word_of(const Lmdb::Value& value) {
  std::uint64_t word = 0;
  if (value.bytes == sizeof word) std::memcpy(&word, value.data, sizeof word);
  return word;
}

[[noreturn]] void throw_bounds(const char* option, std::uint64_t value, std::uint64_t most) {
  throw Error(ErrorCode::kInvalidArgument, std::string("ordered store: ") + option + " is " +
                                               std::to_string(value) + "; give a value from 1 to " +
                                               std::to_string(most));
}

}  // namespace

std::string ordered_store_problem() {
  const std::string problem = Lmdb{}.load();
  return problem.empty() ? problem : "ordered store: " + problem;
}

OrderedStore::OrderedStore(Env& env, const OrderedStoreOptions& options)
    : env_(env),
      options_(options),
      changing_(env),
      footprint_(env, this, options.max_keys * kBytesPerKey) {
  check_options();
  if (const std::string problem = lmdb_.load(); !problem.empty())
    throw Error(ErrorCode::kUnavailable, "ordered store: " + problem);
  require(lmdb_.env_create(&map_), "mdb_env_create");
  try {
    open_map();
  } catch (const Error&) {
    lmdb_.env_close(map_);
    throw;
  }
}

OrderedStore::~OrderedStore() { lmdb_.env_close(map_); }

void OrderedStore::check_options() const {
  if (options_.max_keys == 0 || options_.max_keys > kMostKeys)
    throw_bounds("max_keys", options_.max_keys, kMostKeys);
  if (options_.readers == 0 || options_.readers > kMostReaders)
    throw_bounds("readers", options_.readers, kMostReaders);
}

void OrderedStore::open_map() {
  const MapFolder folder;
  const std::uint64_t bytes = kLeastMapBytes + options_.max_keys * kMapBytesPerKey;
  require(lmdb_.env_set_mapsize(map_, bytes), "mdb_env_set_mapsize");
  require(lmdb_.env_set_maxreaders(map_, options_.readers), "mdb_env_set_maxreaders");
  // Without MDB_WRITEMAP a full /dev/shm fails a put; with it, SIGBUS would end the process.
  const int opened = lmdb_.env_open(map_, folder.path(), Lmdb::kNoSync | Lmdb::kNoTls, 0600);
  if (opened != 0)
    throw Error(ErrorCode::kExhausted,
                std::string("ordered store: LMDB cannot open ") + folder.path() +
                    " with a map of " + std::to_string(bytes) +
                    " bytes: " + lmdb_.strerror(opened) + "; lower max_keys or free /dev/shm");
  Lmdb::Transaction* transaction = begin(0);
  require(
      lmdb_.dbi_open(transaction, nullptr, options_.bugs.map_flags(Lmdb::kIntegerKey), &database_),
      "mdb_dbi_open");
  require(lmdb_.txn_commit(transaction), "mdb_txn_commit");
}

Lmdb::Transaction* OrderedStore::begin(unsigned flags) {
  Lmdb::Transaction* transaction = nullptr;
  const int error = lmdb_.txn_begin(map_, nullptr, flags, &transaction);
  if (error == Lmdb::kReadersFull)
    throw Error(ErrorCode::kExhausted, "ordered store: all " + std::to_string(options_.readers) +
                                           " readers exist; raise OrderedStoreOptions::readers");
  require(error, "mdb_txn_begin");
  return transaction;
}

std::size_t OrderedStore::entries(Lmdb::Transaction* transaction) {
  Lmdb::Statistics found{};
  require(lmdb_.stat(transaction, database_, &found), "mdb_stat");
  return found.entries;
}

int OrderedStore::insert(Lmdb::Transaction* transaction, std::span<const StoreEntry> entries) {
  for (const StoreEntry& entry : entries) {
    Lmdb::Value key = as_value(entry.key), value = as_value(entry.value);
    const int error = lmdb_.put(transaction, database_, &key, &value, 0);
    if (error != 0) return error;
  }
  return 0;
}

// LMDB writes the changed pages, and then the page that names them.
void OrderedStore::charge_commit() {
  env_.charge(Cost::kSystemCall, 2);
  env_.charge_copy(kCommitBytes, &footprint_);
}

StoreOutcome OrderedStore::put_all(std::span<const StoreEntry> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) const Scope each(env_, scope::store_put_key);
  const Scope step(env_, scope::store_put);
  const std::lock_guard lock(changing_);
  charge_commit();
  // A transaction that is open has no call of Env: a switch to another simulated thread, or the
  // end of this one, would leave LMDB's mutex locked.
  Lmdb::Transaction* transaction = begin(0);
  int error = insert(transaction, entries);
  const bool is_full = error == 0 && this->entries(transaction) > options_.max_keys;
  if (error == 0 && !is_full) {
    error = lmdb_.txn_commit(transaction);  // frees the transaction, also if it fails
  } else {
    lmdb_.txn_abort(transaction);
  }
  return is_full ? StoreOutcome::kFull : outcome_of(error, "mdb_put and mdb_txn_commit");
}

StoreOutcome OrderedStore::outcome_of(int error, const char* calls) const {
  if (error == Lmdb::kNotFound) return StoreOutcome::kAbsent;
  if (error == Lmdb::kMapFull || error == ENOSPC || error == ENOMEM) return StoreOutcome::kNoMemory;
  require(error, calls);
  return StoreOutcome::kDone;
}

StoreOutcome OrderedStore::erase(std::uint64_t key) {
  const Scope step(env_, scope::store_put);
  const std::lock_guard lock(changing_);
  charge_commit();
  Lmdb::Transaction* transaction = begin(0);
  Lmdb::Value name = as_value(key);
  int error = lmdb_.del(transaction, database_, &name, nullptr);
  if (error == 0) {
    error = lmdb_.txn_commit(transaction);
  } else {
    lmdb_.txn_abort(transaction);
  }
  return outcome_of(error, "mdb_del and mdb_txn_commit");
}

void OrderedStore::require(int error, const char* call) const {
  if (error == 0) return;
  throw Error(ErrorCode::kInternal, std::string("ordered store: ") + call + ": " +
                                        lmdb_.strerror(error) + " (" + std::to_string(error) +
                                        "); report this as a bug");
}

StoreReader::StoreReader(OrderedStore& store)
    : store_(store), transaction_(store.begin(Lmdb::kReadOnly)) {
  const int error = store.lmdb_.cursor_open(transaction_, store.database_, &cursor_);
  if (error != 0) store.lmdb_.txn_abort(transaction_);
  store.require(error, "mdb_cursor_open");
  store.lmdb_.txn_reset(transaction_);
}

StoreReader::~StoreReader() {
  store_.lmdb_.cursor_close(cursor_);
  store_.lmdb_.txn_abort(transaction_);
}

// The snapshot of the last transaction that is committed.
void StoreReader::begin_read() {
  store_.options_.bugs.begin_read(
      *this, [&] { store_.require(store_.lmdb_.txn_renew(transaction_), "mdb_txn_renew"); });
}

// LMDB may now use the pages of the snapshot again.
void StoreReader::end_read() {
  store_.options_.bugs.end_read([&] { store_.lmdb_.txn_reset(transaction_); });
}

void StoreReader::charge_descent() {
  for (int line = 0; line < kLeafLines; ++line) store_.env_.charge_walk(store_.footprint_, this);
}

std::optional<std::uint64_t> StoreReader::get(std::uint64_t key) {
  const Scope step(store_.env_, scope::store_get);
  charge_descent();
  begin_read();
  Lmdb::Value name = as_value(key), value;
  const int error = store_.lmdb_.get(transaction_, store_.database_, &name, &value);
  std::optional<std::uint64_t> found;
  if (error == 0) found = word_of(value);
  end_read();
  if (error != Lmdb::kNotFound) store_.require(error, "mdb_get");
  return found;
}

std::size_t StoreReader::scan(std::uint64_t first, std::span<StoreEntry> out) {
  return store_.options_.bugs.scan(
      *this, first, out,
      [this](std::uint64_t from, std::span<StoreEntry> into) { return scan_once(from, into); });
}

std::size_t StoreReader::scan_once(std::uint64_t first, std::span<StoreEntry> out) {
  const Scope step(store_.env_, scope::store_scan);
  charge_descent();
  begin_read();
  store_.require(store_.lmdb_.cursor_renew(transaction_, cursor_), "mdb_cursor_renew");
  Lmdb::Value key = as_value(first), value;
  std::size_t count = 0;
  int error = 0;
  for (int move = Lmdb::kSetRange; count < out.size(); move = Lmdb::kNext) {
    const Scope each(store_.env_, scope::store_scan_key);
    error = store_.lmdb_.cursor_get(cursor_, &key, &value, move);
    if (error != 0) break;
    out[count++] = {word_of(key), word_of(value)};
  }
  end_read();
  if (error != Lmdb::kNotFound) store_.require(error, "mdb_cursor_get");
  store_.env_.charge_copy(count * kEntryBytes, &store_.footprint_);
  return count;
}

}  // namespace pyrdma::erpc
