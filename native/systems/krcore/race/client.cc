#include "systems/krcore/race/client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/error.h"

namespace pyrdma::krcore::race {

namespace {

constexpr std::uint64_t in_units(std::uint64_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

constexpr std::uint32_t kBlocksRead = 4;  // that an operation has room for, of the largest ones

std::uint64_t operation_bytes(const TableAddress& table) {
  return 2 * kCombinedBytes + Buffers::kWords * 8 +
         std::uint64_t{1 + kBlocksRead} * table.block_bytes();
}

std::uint64_t directory_bytes(const TableAddress& table) {
  return in_units(8 + (8ULL << table.max_depth));
}

void check_option(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              "race::ClientOptions::" + std::string(name) + " is " + std::to_string(value) +
                  "; give " + std::to_string(least) + " to " + std::to_string(most));
}

const TableAddress& checked(const TableAddress& table) {
  table.check();
  return table;
}

const ClientOptions& checked(const ClientOptions& options, const TableAddress& table) {
  check_option("window", options.window, 1, 4096);
  check_option("split_groups", options.split_groups, 1, Splitter::kMostGroups);
  check_option("client", options.client, 0, 1023);
  check_option("chunk_bytes", options.chunk_bytes, table.block_bytes(), 1ULL << 32);
  if (options.chunk_bytes % kUnit != 0)
    throw Error(ErrorCode::kInvalidArgument, "race::ClientOptions::chunk_bytes is " +
                                                 std::to_string(options.chunk_bytes) +
                                                 "; give a multiple of " + std::to_string(kUnit));
  return options;
}

}  // namespace

/// Reads the directory for the first time.
class Client::Fetch final : public Task {
 public:
  explicit Fetch(Client& client) : client_(client) {}
  void proceed() override {
    has_failed = lost();
    if (has_failed || is_done) return;
    Links& links = client_.context_->links;
    Directory& directory = client_.context_->directory;
    if (!knows_depth_) {
      knows_depth_ = true;
      links.read(0, kGlobalDepthAt, directory.words(), 8);
      return links.ring(*this, 0);
    }
    if (at_ == 1U << directory.global_depth()) {
      is_done = true;
      return;
    }
    constexpr std::uint32_t kPiece = 4096;  // entries
    const std::uint32_t count = std::min(kPiece, (1U << directory.global_depth()) - at_);
    links.read(0, kDirectoryAt + 8ULL * at_, directory.words() + 1 + at_, count * 8);
    at_ += count;
    links.ring(*this, 0);
  }
  bool is_done = false, has_failed = false;

 private:
  Client& client_;
  bool knows_depth_ = false;
  std::uint32_t at_ = 0;
};

Client::Client(Env& env, fabric::Device& device, fabric::ProtectionDomain& pd,
               fabric::CompletionQueue& completions, std::span<fabric::QueuePair* const> pairs,
               const TableAddress& table, ClientOptions options)
    : env_(env),
      completions_(completions),
      table_(checked(table)),
      options_(checked(options, table_)) {
  const std::uint64_t each = operation_bytes(table_);
  const std::uint64_t fixed = directory_bytes(table_) + in_units(Splitter::bytes(table_)) + kUnit;
  memory_ = device.allocate(pd, fixed + each * options_.window, fabric::kLocalWrite);
  std::byte* at = memory_->data();
  auto* words = reinterpret_cast<std::uint64_t*>(at);
  at += directory_bytes(table_);
  context_.reset(
      new Context{env_, options_, table_,
                  Links(env_, pairs, completions_, table_, *memory_, options_.queue_entries),
                  Directory(table_, {words, 1 + (std::size_t{1} << table_.max_depth)}),
                  Blocks(table_, options_)});
  context_->zeros = at;
  context_->unread = at + kUnit - 8;
  at += kUnit;
  splitter_ = std::make_unique<Splitter>(*context_, at);
  context_->splitter = splitter_.get();
  context_->links.add(*splitter_);
  at += in_units(Splitter::bytes(table_));
  for (std::uint32_t i = 0; i < options_.window; ++i) {
    Buffers buffers;
    buffers.buckets = at;
    buffers.words = reinterpret_cast<std::uint64_t*>(at + 2 * kCombinedBytes);
    buffers.out = at + 2 * kCombinedBytes + Buffers::kWords * 8;
    buffers.in = buffers.out + table_.block_bytes();
    buffers.in_bytes = kBlocksRead * table_.block_bytes();
    operations_.push_back(std::make_unique<Operation>(*context_, buffers));
    context_->links.add(*operations_.back());
    free_.push_back(operations_.back().get());
    at += each;
  }
  fetch_directory();
}

Client::~Client() = default;

void Client::fetch_directory() {
  Fetch fetch(*this);
  context_->links.add(fetch);
  fetch.proceed();
  const auto is_over = [&] {
    turn();
    return fetch.is_done || fetch.has_failed;
  };
  turn();
  const NodeId node = table_.regions[0].node;
  if (!env_.poll_until(is_over, env_.now() + options_.timeout, &completions_.watch()))
    throw Error(ErrorCode::kTimeout, "storage node " + std::to_string(node) +
                                         " has not sent the RACE directory within " +
                                         std::to_string(options_.timeout / kMicrosecond) +
                                         " us (ClientOptions::timeout): it is cut off or slow")
        .blaming({node});
  if (fetch.has_failed)
    throw Error(ErrorCode::kUnavailable,
                "storage node " + std::to_string(node) + " does not send the RACE directory (" +
                    fabric::to_string(context_->links.broken(0)) +
                    "): it has ended, is cut off, or has another table; connect again")
        .blaming({node});
  context_->links.remove_last();
}

void Client::check_sizes(ByteView key, ByteView value) const {
  const auto refuse = [](const char* what, std::size_t size, std::size_t least, std::size_t most,
                         const char* option) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(what) + " has " + std::to_string(size) +
                    " bytes; the RACE table takes " + std::to_string(least) + " to " +
                    std::to_string(most) +
                    ": make the table with a larger StorageOptions::" + option);
  };
  if (key.empty() || key.size() > table_.max_key_bytes)
    refuse("a key", key.size(), 1, table_.max_key_bytes, "max_key_bytes");
  if (value.size() > table_.max_value_bytes)
    refuse("a value", value.size(), 0, table_.max_value_bytes, "max_value_bytes");
}

void Client::start(Kind kind, std::uint64_t tag, ByteView key, ByteView value) {
  check_sizes(key, value);
  reclaim();
  PYRDMA_ASSERT(!free_.empty());
  Operation* operation = free_.back();
  free_.pop_back();
  ++under_way_;
  operation->start(kind, tag, key, value);
}

void Client::reclaim() {
  free_.insert(free_.end(), returned_.begin(), returned_.end());
  returned_.clear();
}

// One turn: completions, the steps that they allow, and one doorbell per storage node.
void Client::turn() {
  Links& links = context_->links;
  links.take();
  do {
    while (Task* task = links.next_ready()) task->proceed();
  } while (!links.post());
}

Result Client::result_of(const Operation& operation) const {
  const std::optional<Error>& error = operation.error();
  return {operation.tag(), operation.kind(), operation.outcome(), operation.value(),
          error ? &*error : nullptr};
}

// Operations whose caller got a timeout have ended meanwhile.
void Client::take_abandoned() {
  if (abandoned_.empty()) [[likely]]
    return;
  std::erase_if(context_->over, [&](Operation* operation) {
    if (std::erase(abandoned_, operation) == 0) return false;
    free_.push_back(operation);
    return true;
  });
}

std::span<const Result> Client::poll() {
  reclaim();
  turn();
  results_.clear();
  take_abandoned();
  for (Operation* operation : context_->over) {
    returned_.push_back(operation);
    results_.push_back(result_of(*operation));
    --under_way_;
  }
  context_->over.clear();
  return results_;
}

std::span<const Result> Client::wait(Time deadline) {
  std::span<const Result> found = poll();
  if (!found.empty() || under_way_ == 0) return found;
  env_.poll_until(
      [&] {
        found = poll();
        return !found.empty();
      },
      deadline, &completions_.watch());
  return found;
}

bool Client::drain(Time deadline) {
  const auto is_idle = [&] {
    turn();
    return context_->links.is_idle();
  };
  return is_idle() || env_.poll_until(is_idle, deadline, &completions_.watch());
}

Outcome Client::lookup(ByteView key, Bytes& value) { return run(Kind::kLookup, key, {}, &value); }

Outcome Client::run(Kind kind, ByteView key, ByteView value, Bytes* into) {
  check_sizes(key, value);
  reclaim();
  take_abandoned();
  if (free_.empty() && !abandoned_.empty()) {
    env_.poll_until(
        [&] {
          turn();
          take_abandoned();
          return !free_.empty();
        },
        env_.now() + options_.timeout, &completions_.watch());
  }
  if (free_.empty())
    throw Error(ErrorCode::kExhausted,
                "a RACE client has " + std::to_string(options_.window) +
                    " operations under way (ClientOptions::window): take results first");
  Operation* operation = free_.back();
  free_.pop_back();
  operation->start(kind, 0, key, value);
  std::deque<Operation*>& over = context_->over;
  auto found = over.end();
  const auto is_over = [&] {
    turn();
    found = std::ranges::find(over, operation);
    return found != over.end();
  };
  // The operation ends by itself, in time, as long as the storage nodes answer.
  if (!is_over() &&
      !env_.poll_until(is_over, env_.now() + 2 * options_.timeout, &completions_.watch())) {
    abandoned_.push_back(operation);
    throw Error(ErrorCode::kTimeout,
                std::string("the ") + to_string(kind) + " of a key has no answer within " +
                    std::to_string(2 * options_.timeout / kMicrosecond) +
                    " us (twice ClientOptions::timeout): a storage node is cut off or slow",
                kind == Kind::kLookup);
  }
  over.erase(found);
  returned_.push_back(operation);
  if (operation->error()) throw Error(*operation->error());
  if (into != nullptr) into->assign(operation->value().begin(), operation->value().end());
  return operation->outcome();
}

}  // namespace pyrdma::krcore::race
