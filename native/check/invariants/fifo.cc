#include "check/invariants/fifo.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "check/verdict.h"

namespace pyrdma::check {

namespace {

struct Item {
  const Operation* enq = nullptr;
  const Operation* deq = nullptr;
  std::uint32_t in = kNever;        // the enqueue certainly was complete by then
  std::uint32_t out_call = kNever;  // invocation of its dequeue
};

class Fifo {
 public:
  explicit Fifo(const History& history) : history_(history) {}

  void add(const Operation& op) {
    if (op.f == Function::kEnq) {
      Item& item = items_[op.input];
      if (item.enq != nullptr)
        throw Error(ErrorCode::kInvalidArgument,
                    "event " + std::to_string(op.call) + ": value " + show(op.input) +
                        " is enqueued a second time; the model fifo needs unique values, queue "
                        "takes any");
      item.enq = &op;
      enqs_.push_back(&op);
    } else if (!op.known()) {
      first_unknown_deq_ = std::min(first_unknown_deq_, op.call);
    } else if (op.output.is_none()) {
      empties_.push_back(&op);
    } else {
      deqs_.push_back(&op);
    }
  }

  MaybeViolation check() {
    if (auto found = wrong_values()) return found;
    for (auto& [value, item] : items_) {
      // The value of an enqueue of unknown outcome came out: the enqueue had happened by then.
      item.in = item.deq != nullptr ? std::min(item.enq->ret, item.deq->ret) : item.enq->ret;
      item.out_call = item.deq != nullptr ? item.deq->call : first_unknown_deq_;
    }
    if (auto found = inversion()) return found;
    return full_but_found_empty();
  }

 private:
  std::string show(const Value& value) const { return history_.show(value); }
  std::string tell(const Operation& op) const {
    return describe(history_, op) + " (" + where(op) + ')';
  }

  MaybeViolation wrong_values() {
    for (const Operation* deq : deqs_) {
      history_.poll();
      const auto at = items_.find(deq->output);
      if (at == items_.end() || at->second.enq == nullptr)
        return violation_of("value " + show(deq->output) + " was never enqueued: " + tell(*deq),
                            {*deq});
      Item& item = at->second;
      if (item.enq->call > deq->ret)
        return violation_of("value " + show(deq->output) + " came out before it went in: " +
                                tell(*deq) + ", " + tell(*item.enq),
                            {*deq, *item.enq});
      if (item.deq != nullptr)
        return violation_of("value " + show(deq->output) + " came out twice: " + tell(*item.deq) +
                                ", " + tell(*deq),
                            {*item.enq, *item.deq, *deq});
      item.deq = deq;
    }
    return std::nullopt;
  }

  /// Walks the values by the beginning of their enqueues. It takes the values that certainly went
  /// in before this one, and of them the one whose dequeue began last. That dequeue must not begin
  /// after the end of this value's dequeue.
  MaybeViolation inversion() {
    std::vector<const Item*> by_in;
    for (const Operation* enq : enqs_) {
      const Item& item = items_.at(enq->input);
      // A dequeue of unknown outcome may have taken any value that never came out.
      if (item.in == kNever || (item.deq == nullptr && first_unknown_deq_ != kNever)) continue;
      by_in.push_back(&item);
    }
    std::ranges::sort(by_in, {}, &Item::in);
    std::size_t passed = 0;
    const Item* last_out = nullptr;
    for (const Operation* enq : enqs_) {  // by invocation
      while (passed < by_in.size() && by_in[passed]->in < enq->call) {
        const Item* item = by_in[passed++];
        if (last_out == nullptr || item->out_call > last_out->out_call) last_out = item;
      }
      const Item& item = items_.at(enq->input);
      if (item.deq == nullptr || last_out == nullptr || last_out->out_call < item.deq->ret)
        continue;
      std::vector<Operation> ops = {*last_out->enq, *enq, *item.deq};
      const std::string first = show(last_out->enq->input), second = show(enq->input);
      std::string text =
          first + " was enqueued before " + second + ", but " + second + " was dequeued ";
      if (last_out->deq == nullptr) {
        text += "and " + first + " never was: ";
      } else {
        text += "before " + first + ": ";
        ops.push_back(*last_out->deq);
      }
      text += tell(*last_out->enq) + ", " + tell(*enq) + ", " + tell(*item.deq);
      if (last_out->deq != nullptr) text += ", " + tell(*last_out->deq);
      return violation_of(text, ops);
    }
    return std::nullopt;
  }

  /// Looks for a dequeue that found nothing while some value was certainly inside at every moment.
  MaybeViolation full_but_found_empty() {
    struct Full {
      std::uint32_t from, to;
      const Item* item;
    };
    std::vector<Full> inside;
    for (const Operation* enq : enqs_) {
      const Item& item = items_.at(enq->input);
      if (item.in < item.out_call) inside.push_back({item.in, item.out_call, &item});
    }
    std::ranges::sort(inside, {}, &Full::from);
    std::ranges::sort(empties_, {}, &Operation::call);
    // Stretches without a moment of certain emptiness; each is a chain of intervals.
    std::size_t next = 0;
    std::size_t begin = 0;
    Full stretch{0, 0, nullptr};
    for (const Operation* deq : empties_) {
      history_.poll();
      while (next < inside.size() && inside[next].from < deq->call) {
        const Full& full = inside[next];
        if (stretch.item == nullptr || full.from > stretch.to) {
          stretch = full;
          begin = next;
        }
        stretch.to = std::max(stretch.to, full.to);
        ++next;
      }
      std::uint32_t to = stretch.to;
      std::size_t end = next;
      for (; end < inside.size() && inside[end].from < to; ++end) to = std::max(to, inside[end].to);
      if (stretch.item == nullptr || to < deq->ret) continue;
      std::vector<Operation> ops = {*deq};
      std::string values;
      for (std::size_t i = begin; i < end; ++i) {
        if (inside[i].to < deq->call || inside[i].from > deq->ret) continue;
        if (ops.size() > 20) break;
        ops.push_back(*inside[i].item->enq);
        if (inside[i].item->deq != nullptr) ops.push_back(*inside[i].item->deq);
        values += ' ' + show(inside[i].item->enq->input);
      }
      return violation_of(tell(*deq) + " found the queue empty, although the values" + values +
                              " kept it non-empty during the whole operation",
                          ops);
    }
    return std::nullopt;
  }

  const History& history_;
  std::unordered_map<Value, Item, ValueHash> items_;
  std::vector<const Operation*> enqs_, deqs_, empties_;
  std::uint32_t first_unknown_deq_ = kNever;
};

std::tuple<int, std::int64_t, std::int64_t> order(const Value& key) {
  return {static_cast<int>(key.kind), key.a, key.b};
}

}  // namespace

MaybeViolation check_fifo(const History& history, const Operations& operations) {
  std::map<std::tuple<int, std::int64_t, std::int64_t>, Fifo> queues;
  for (const Operation& op : operations.all)
    if (op.f == Function::kEnq || op.f == Function::kDeq)
      queues.try_emplace(order(op.key), history).first->second.add(op);
  for (auto& [key, queue] : queues)
    if (auto found = queue.check()) return found;
  return std::nullopt;
}

}  // namespace pyrdma::check
