// Every order of few registrations, lookups and requests of an owner of memory and a reader of its
// table, while time passes. Nothing of the reader may reach memory that has another use by now, and
// a lookup finds what is there for all of its time, and nothing that was not there in any of it.
//
// A lookup of the reader stops at each of its READs: it is run again with what the earlier ones
// have read.
#include "check/explore.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/by_hand_test.h"
#include "fuzz/small_test.h"
#include "systems/krcore/memory/lease.h"
#include "systems/krcore/memory/mr_store.h"
#include "systems/krcore/memory/regions.h"
#include "systems/krcore/vqp/vqp.h"

namespace pyrdma::krcore {
namespace {

/// How often what may happen.
struct Events {
  std::uint32_t ticks = 0;  // each the time of all attempts of a request
  std::uint32_t removals = 0, allocations = 0;
  std::uint32_t requests = 0;
  std::uint32_t lease = 1;  // ticks
};

class LeaseWorld {
 public:
  enum class Act : std::uint8_t {
    kTick,
    kRemove,
    kAllocate,
    kCheck,
    kRead,
    kEndLookup,
    kPost,
    kArrive
  };
  struct Choice {
    Act act = Act::kTick;
    std::uint32_t region = 0;
  };

  LeaseWorld(const Events& events, Bug bug)
      : left_(events),
        options_(options_of(events, bug)),
        domain_(node_.device().create_protection_domain()) {
    regions_.emplace(node_, *domain_, options_);
    lease_.emplace(options_);
    allocate();
  }
  LeaseWorld(const LeaseWorld&) = delete;
  LeaseWorld& operator=(const LeaseWorld&) = delete;

  std::vector<Choice> choices() const {
    std::vector<Choice> all;
    if (left_.ticks != 0 && !(request_.stage == Stage::kUnderWay && is_last_moment()))
      all.push_back({Act::kTick});
    for (std::uint32_t i = 0; i < registered_.size(); ++i) {
      if (left_.removals != 0 && registered_[i].is_there) all.push_back({Act::kRemove, i});
      if (left_.requests != 0 && request_.stage == Stage::kNone) all.push_back({Act::kCheck, i});
    }
    if (left_.allocations != 0) all.push_back({Act::kAllocate});
    switch (request_.stage) {
      case Stage::kNone:
        break;
      case Stage::kLooksUp:
        all.push_back({request_.result ? Act::kEndLookup : Act::kRead});
        break;
      case Stage::kChecked:
        all.push_back({Act::kPost});
        break;
      case Stage::kUnderWay:
        all.push_back({Act::kArrive});
    }
    return all;
  }

  void take(const Choice& choice) {
    switch (choice.act) {
      case Act::kTick:
        --left_.ticks;
        network_.now += options_.attempts();
        regions_->free_ended(network_.now);
        return;
      case Act::kRemove:
        --left_.removals;
        regions_->remove(registered_[choice.region].key);
        registered_[choice.region].is_there = false;
        registered_[choice.region].removed = network_.now;
        was_there(choice.region, false);
        note(choice);
        return;
      case Act::kAllocate:
        --left_.allocations;
        allocate();
        note(choice);
        return;
      case Act::kCheck:
        --left_.requests;
        return check(choice.region);
      case Act::kRead:
        return read();
      case Act::kEndLookup:
        return end_lookup();
      case Act::kPost:
        return post();
      case Act::kArrive:
        return arrive();
    }
  }

  static std::string describe(const Choice& choice) {
    static constexpr std::array<const char*, 8> kNames{"time passes",
                                                       "remove region",
                                                       "allocate a region",
                                                       "check a request to region",
                                                       "a READ of the table",
                                                       "the lookup ends",
                                                       "post",
                                                       "the request arrives"};
    std::string text = kNames[static_cast<std::size_t>(choice.act)];
    if (choice.act == Act::kRemove || choice.act == Act::kCheck)
      text += ' ' + std::to_string(choice.region);
    return text;
  }

  // What the owner has is known by what it has done, in order, and by how long ago its removals
  // were. What a READ has found is known by how much the owner had done.
  check::StateHash hash() const {
    check::StateHash hash;
    hash.add(wrong_.size());
    add_all(hash, left_.ticks, left_.removals, left_.allocations, left_.requests, done_.size());
    for (const std::uint64_t each : done_) hash.add(each);
    for (const Registered& each : registered_) {
      if (!each.is_there) add_all(hash, std::min(network_.now - each.removed, lease_->grace() + 1));
      const MrStore::Entry* entry = store_.find(kOwner, 0, each.key, network_.now);
      hash.add(entry == nullptr ? 0 : since(entry->expires));
    }
    hash.add(known_.key);
    hash.add(known_.entry.expires <= network_.now ? 0 : since(known_.entry.expires));
    hash.add(static_cast<std::uint64_t>(request_.stage));
    if (request_.stage == Stage::kNone) return hash;
    hash.add(request_.region);
    if (request_.stage == Stage::kUnderWay) hash.add(since(request_.posted));
    if (request_.stage == Stage::kChecked)
      hash.add(lease_->is_late(request_.checked, network_.now) ? 0 : since(request_.checked));
    if (request_.stage != Stage::kLooksUp) return hash;
    add_all(hash, since(request_.asked), request_.could_be, request_.must_be, request_.reads.size(),
            request_.result.has_value());
    for (const Read& each : request_.reads) hash.add(each.at);
    return hash;
  }

  std::string wrong() const { return wrong_; }

 private:
  static constexpr NodeId kOwner = 0;
  static constexpr std::uint64_t kBytes = 64;
  enum class Stage : std::uint8_t { kNone, kLooksUp, kChecked, kUnderWay };
  struct Registered {
    std::uint32_t key = 0;
    RegionRecord record;
    bool is_there = false;
    Time removed = 0;
  };
  struct Read {
    Bytes bytes;
    std::size_t at = 0;  // how much the owner had done
  };
  struct Request {
    Stage stage = Stage::kNone;
    std::uint32_t region = 0;
    Time asked = 0, checked = 0, posted = 0;
    std::vector<Read> reads;
    std::optional<LookupResult> result;  // of the lookup
    RegionRecord found;
    bool could_be = false, must_be = false;  // there in the time of the lookup
  };

  static Options options_of(const Events& events, Bug bug) {
    Options options;
    options.regions = 8;
    options.arena_bytes = kBytes;  // an ended region's memory is the next one's
    options.retry_count = 0;
    options.lease = events.lease * options.attempts();
    options.bugs = bug;
    return options;
  }
  std::uint64_t since(Time time) const { return static_cast<std::uint64_t>(network_.now - time); }
  bool is_last_moment() const { return network_.now - request_.posted >= options_.attempts(); }
  void note(const Choice& choice) {
    done_.push_back(static_cast<std::uint64_t>(choice.act) | std::uint64_t{choice.region} << 8U);
  }
  template <class... Words>
  static void add_all(check::StateHash& hash, Words... words) {
    (hash.add(static_cast<std::uint64_t>(words)), ...);
  }
  void was_there(std::uint32_t region, bool is_there) {
    if (request_.stage != Stage::kLooksUp || request_.region != region || request_.result) return;
    request_.could_be |= is_there;
    request_.must_be &= is_there;
  }

  void allocate() {
    try {
      const Registration made = regions_->allocate(kBytes, fabric::kAllAccess, 1);
      registered_.push_back({made.key, {made.addr, made.bytes, 0, fabric::kAllAccess}, true});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kExhausted) throw;  // the memory has a lease yet
    }
  }

  // As Service::check_one_sided() and find_region().
  void check(std::uint32_t region) {
    request_ = {};
    request_.region = region;
    const std::uint32_t key = registered_[region].key;
    if (known_.key == key && known_.is_valid(kOwner, 1, network_.now, 0)) return checked();
    known_ = {kOwner, 1, key, 0, {}};
    if (const MrStore::Entry* entry = store_.find(kOwner, 0, key, network_.now)) {
      known_.entry = *entry;
      return checked();
    }
    request_.stage = Stage::kLooksUp;
    request_.asked = network_.now;
    request_.could_be = request_.must_be = registered_[region].is_there;
  }
  void checked() {
    request_.checked = network_.now;
    request_.stage = Stage::kChecked;
  }
  void read() {
    std::size_t used = 0;
    const auto read = [&](std::uint64_t offset, std::span<std::byte> into) {
      if (used == request_.reads.size()) {
        const auto* from = reinterpret_cast<const std::byte*>(regions_->table().addr + offset);
        request_.reads.push_back({Bytes(from, from + into.size()), done_.size()});
        used = kStopped;
      }
      if (used == kStopped) return false;
      std::memcpy(into.data(), request_.reads[used++].bytes.data(), into.size());
      return true;
    };
    const auto look = [&] {
      used = 0;
      return look_up(regions_->shape(), registered_[request_.region].key,
                     std::as_writable_bytes(std::span(&request_.found, 1)), read);
    };
    look();  // stops behind one READ more
    const std::size_t reads = request_.reads.size();
    const LookupResult result = look();  // whether that was the last one
    if (request_.reads.size() > reads)
      request_.reads.pop_back();
    else
      request_.result = result;
  }
  // A thread may come to the answer late.
  void end_lookup() {
    const Registered& region = registered_[request_.region];
    const LookupResult result = *request_.result;
    if (result == LookupResult::kFound && !request_.could_be)
      wrong_ = "a lookup finds a region that has ended before";
    if (result != LookupResult::kFound && request_.must_be)
      wrong_ = "a lookup does not find a region that is there";
    if (result == LookupResult::kFound && request_.found.addr != region.record.addr)
      wrong_ = "a lookup finds another region";
    if (result != LookupResult::kFound) {
      request_ = {};
      return;
    }
    known_.entry = {request_.found, lease_->end(request_.asked, node_), 0};
    store_.put(kOwner, region.key, known_.entry);
    // The check takes the time from before the lookup, as a list has one for all its requests.
    request_.checked = request_.asked;
    request_.stage = Stage::kChecked;
  }
  // As push() and check_held(): what waited is checked again, and looked up again if need be.
  void post() {
    if (lease_->is_late(request_.checked, network_.now)) {
      const std::uint32_t key = registered_[request_.region].key;
      if (store_.find(kOwner, 0, key, network_.now) == nullptr) return check(request_.region);
    }
    request_.posted = network_.now;
    request_.stage = Stage::kUnderWay;
  }
  void arrive() {
    const std::uint64_t addr = registered_[request_.region].record.addr;
    for (std::uint32_t i = 0; i < registered_.size(); ++i) {
      if (i != request_.region && registered_[i].is_there && registered_[i].record.addr == addr)
        wrong_ = "a request reaches the memory of another region";
    }
    request_ = {};
  }

  static constexpr std::size_t kStopped = ~std::size_t{0};
  Events left_;
  const Options options_;
  fabric::by_hand::Network network_;
  fabric::by_hand::Node node_{network_, kOwner, 2};
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::optional<Regions> regions_;
  std::optional<Lease> lease_;
  std::vector<Registered> registered_;  // all that have been
  std::vector<std::uint64_t> done_;     // by the owner
  MrStore store_;
  KnownRegion known_;
  Request request_;
  std::string wrong_;
};

check::Explored explore(const Events& events, Bug bug = Bug::kNone) {
  return check::Explorer([&] { return std::make_unique<LeaseWorld>(events, bug); }).run();
}

TEST(KrcoreExploreSim, NoRequestReachesMemoryOfAnotherRegion) {
  std::vector<std::pair<Events, std::uint64_t>> all{
      // and the fewest states
      {{.ticks = 8, .removals = 1, .allocations = 1, .requests = 1}, 6'000},
      {{.ticks = 8, .removals = 1, .allocations = 1, .requests = 2}, 11'000},
      {{.ticks = 8, .removals = 2, .allocations = 2, .requests = 1, .lease = 2}, 19'000},
  };
  if (fuzz::search_factor() > 1)
    all.push_back({{.ticks = 14, .removals = 2, .allocations = 2, .requests = 2}, 100'000});
  for (const auto& [events, least] : all) {
    if (fuzz::kSlowed && least > 6'000) continue;
    const check::Explored explored = explore(events);
    EXPECT_EQ(explored.wrong, "") << explored.text();
    EXPECT_GE(explored.states, least) << explored.text();
    EXPECT_FALSE(explored.is_cut);
  }
}

TEST(KrcoreExploreBugs, AreFound) {
  const check::Explored at_once =
      explore({.ticks = 1, .removals = 1, .allocations = 1, .requests = 1}, Bug::kNoWaitForLease);
  EXPECT_EQ(at_once.trace.size(), 9U) << at_once.text();
  const check::Explored late =
      explore({.ticks = 6, .removals = 1, .allocations = 1, .requests = 1}, Bug::kLeaseFromAnswer);
  EXPECT_EQ(late.trace.size(), 14U) << late.text();
}

}  // namespace
}  // namespace pyrdma::krcore
