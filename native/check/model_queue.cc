// A FIFO queue. Its states are the interned sequences of its values.
#include <unordered_map>

#include "check/models.h"

namespace pyrdma::check {

namespace {

using Content = std::vector<std::uint32_t>;  // numbers of values, the front first

struct ContentHash {
  std::size_t operator()(const Content& content) const {
    std::uint64_t hash = content.size();
    for (const std::uint32_t value : content) hash = mix64(hash ^ value);
    return hash;
  }
};

class Queue final : public Model {
 public:
  explicit Queue(OperationsView ops) {
    intern({});
    std::unordered_map<Value, std::uint32_t, ValueHash> numbers;
    const auto number = [&](const Value& value) {
      const auto [found, fresh] =
          numbers.try_emplace(value, static_cast<std::uint32_t>(numbers.size()));
      if (fresh) values_.emplace_back();
      return found->second;
    };
    for (const Operation& op : ops) {
      Item item{op.f == Function::kEnq, op.known(), kNothing};
      if (item.enq) {
        item.value = number(op.input);
        unique_ = unique_ && ++values_[item.value].enqs == 1;
      } else if (!op.known()) {
        ++unknown_deqs_;
      } else if (!op.output.is_none()) {
        item.value = number(op.output);
        values_[item.value].deq_call = op.call;
        values_[item.value].deq_ret = op.ret;
      }
      items_.push_back(item);
    }
  }

  StateId initial() const override { return 0; }

  std::uint32_t class_of(std::uint32_t op) const override {
    // By kind and value: [enq, known deq] per value, unknown deq, empty deq.
    const Item& item = items_[op];
    if (item.value != kNothing) return 2 + 2 * item.value + (item.enq ? 1U : 0U);
    return item.known ? 1U : 0U;
  }

  StateId step(StateId from, std::uint32_t op) override {
    const Item& item = items_[op];
    const Content& content = *contents_[from];
    if (item.enq) {
      Content more = content;
      more.push_back(item.value);
      return intern(std::move(more));
    }
    if (!item.known)  // of an unknown outcome: it took a value, or it does not matter
      return content.empty() ? from : intern(Content(content.begin() + 1, content.end()));
    if (item.value == kNothing) return content.empty() ? from : kNoState;
    if (content.empty() || content.front() != item.value) return kNoState;
    return intern(Content(content.begin() + 1, content.end()));
  }

  // Where values are unique, no other dequeue can take this front. A dequeue that finds nothing
  // only looks.
  bool is_free(StateId /*from*/, std::uint32_t op, StateId /*to*/) override {
    return !items_[op].enq && (unique_ || items_[op].value == kNothing);
  }

  // The value goes in after one that comes out later, or never.
  std::uint32_t dead_end(StateId from, std::uint32_t op, StateId /*to*/) override {
    const Item& item = items_[op];
    if (!item.enq) return kNever;
    const Fate& fate = values_[item.value];
    if (fate.deq_ret == kNever) return item.known ? kNever : 0;  // no dequeue needs it
    if (!unique_) return kNever;
    for (const std::uint32_t ahead : *contents_[from]) {
      const Fate& theirs = values_[ahead];
      if (theirs.deq_ret == kNever && unknown_deqs_ == 0) return fate.deq_ret;
      if (theirs.deq_ret != kNever && theirs.deq_call > fate.deq_ret) return theirs.deq_ret;
    }
    return kNever;
  }

 private:
  static constexpr std::uint32_t kNothing = std::numeric_limits<std::uint32_t>::max();
  struct Item {
    bool enq;
    bool known;
    std::uint32_t value;
  };
  struct Fate {
    int enqs = 0;
    std::uint32_t deq_call = kNever;
    std::uint32_t deq_ret = kNever;
  };

  StateId intern(Content content) {
    const auto [found, fresh] =
        ids_.try_emplace(std::move(content), static_cast<StateId>(contents_.size()));
    if (fresh) contents_.push_back(&found->first);
    return found->second;
  }

  std::unordered_map<Content, StateId, ContentHash> ids_;
  std::vector<const Content*> contents_;
  std::vector<Item> items_;
  std::vector<Fate> values_;
  bool unique_ = true;
  int unknown_deqs_ = 0;
};

}  // namespace

std::unique_ptr<Model> make_queue(OperationsView ops) { return std::make_unique<Queue>(ops); }

}  // namespace pyrdma::check
