// The requests that a server of the ordered store takes, and their handlers (eRPC, section 7.2).
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "env/sync.h"
#include "systems/erpc/endpoint.h"
#include "systems/erpc/ordered_store/ordered_store.h"

namespace pyrdma::erpc {

/// The types of the requests. A request is a key, and of a put a value, too. A get answers with the
/// value, a scan with the sum of the values, a put with its StoreOutcome in one byte. The response
/// to a request of another length, and to a get of an absent key, is empty.
enum StoreRequest : std::uint8_t { kStoreGet, kStoreScan, kStorePut };
inline constexpr std::uint32_t kStoreWord = sizeof(std::uint64_t);
inline constexpr std::size_t kStoreScanned = 128;  // keys of a scan

/// Readers for handlers of several threads: one thread has a reader at a time.
class SharedReaders {
 public:
  SharedReaders(Env& env, OrderedStore& store, std::uint32_t count) : mutex_(env) {
    for (std::uint32_t i = 0; i < count; ++i) free_.push_back(std::make_unique<StoreReader>(store));
  }
  std::unique_ptr<StoreReader> take() {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<StoreReader> reader = std::move(free_.back());
    free_.pop_back();
    return reader;
  }
  void give_back(std::unique_ptr<StoreReader> reader) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(reader));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<StoreReader>> free_;
};

/// The handlers of an endpoint. It outlives the endpoint.
class StoreHandlers {
 public:
  StoreHandlers(Env& env, OrderedStore& store, std::uint32_t workers)
      : store_(store), gets_(store), scans_(env, store, std::max(1U, workers)) {}

  void serve(Endpoint& endpoint) {
    const RunIn where = endpoint.options().workers != 0 ? RunIn::kWorker : RunIn::kDispatch;
    endpoint.register_handler(kStoreGet, [this](RequestHandle& handle) { get(handle); });
    endpoint.register_handler(
        kStoreScan, [this](RequestHandle& handle) { scan(handle); }, where);
    endpoint.register_handler(
        kStorePut, [this](RequestHandle& handle) { put(handle); }, where);
  }

 private:
  static constexpr std::uint64_t kMost = ~std::uint64_t{0};

  static std::uint64_t word(const RequestHandle& handle, std::size_t at) {
    std::uint64_t found;
    std::memcpy(&found, handle.request().data() + at, kStoreWord);
    return found;
  }
  static void answer(RequestHandle& handle, const void* data, std::uint32_t bytes) {
    std::memcpy(handle.response(bytes).data(), data, bytes);
  }

  void get(RequestHandle& handle) {
    if (handle.request().size() == kStoreWord) {
      if (const auto found = gets_.get(word(handle, 0))) answer(handle, &*found, kStoreWord);
    }
    handle.respond();
  }
  void scan(RequestHandle& handle) {
    if (handle.request().size() == kStoreWord) {
      const std::uint64_t key = word(handle, 0);
      std::array<StoreEntry, kStoreScanned> entries;
      std::unique_ptr<StoreReader> reader = scans_.take();
      const std::size_t count = key == kMost ? 0 : reader->scan(key + 1, entries);
      scans_.give_back(std::move(reader));
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < count; ++i) sum += entries[i].value;
      answer(handle, &sum, kStoreWord);
    }
    handle.respond();
  }
  void put(RequestHandle& handle) {
    if (handle.request().size() == 2 * kStoreWord) {
      const StoreOutcome outcome = store_.put(word(handle, 0), word(handle, kStoreWord));
      answer(handle, &outcome, sizeof outcome);
    }
    handle.respond();
  }

  OrderedStore& store_;
  StoreReader gets_;
  SharedReaders scans_;
};

}  // namespace pyrdma::erpc
