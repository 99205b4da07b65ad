// The operations of clients on the key-value store: L1, and L2 because values are wide.
#include "systems/loco/fuzz/node.h"

namespace pyrdma::loco::scenario {

using check::EventType;
using check::Function;
using check::Value;

void Node::lookup(Caller& me, const Planned& op) {
  check::History& log = world_.log(Log::kStore);
  const std::uint64_t number = op.object % kKeys;
  const Value key = Value::integer(static_cast<std::int64_t>(number));
  log.invoke(env_.now(), process(me), Function::kGet, key, {});
  Wide found;
  const Outcome outcome = store_->lookup(me, number, std::as_writable_bytes(std::span(&found, 1)));
  const bool there = outcome == Outcome::kOk;
  log.complete(env_.now(), process(me), EventType::kOk, Function::kGet, key,
               there ? Value::integer(static_cast<std::int64_t>(found.words[0])) : Value::none());
  ++world_.outcome.ok;
  if (there && found.words != wide(0, found.words[0]).words) {
    world_.violation("torn", "client " + std::to_string(process(me)) + " finds a value of key " +
                                 std::to_string(number) + " that no client wrote, beginning with " +
                                 std::to_string(found.words[0]));
  }
}

// A change that is dropped goes on until the key's lock is free again.
void Node::drop_change(Caller& me, const Planned& op) {
  const Wide value = wide(0, 1 + std::uint64_t{op.id});
  const auto bytes = std::as_bytes(std::span(&value, 1));
  KvOperation dropped(*store_, me);
  if (op.draw % 3 == 0) dropped.insert(kDroppedKey, bytes);
  if (op.draw % 3 == 1) dropped.update(kDroppedKey, bytes);
  if (op.draw % 3 == 2) dropped.remove(kDroppedKey);
  for (std::uint32_t polls = op.draw / 4 % 16; polls > 0 && !dropped.over(); --polls) {
    manager_.turn();
    env_.now();
    dropped.poll();
  }
}

void Node::change(Caller& me, const Planned& op) {
  if (op.draw / 64 % 8 == 0) return drop_change(me, op);
  check::History& log = world_.log(Log::kStore);
  const std::uint64_t number = op.object % kKeys;
  const Value key = Value::integer(static_cast<std::int64_t>(number));
  const Wide value = wide(0, 1 + std::uint64_t{op.id});
  const auto bytes = std::as_bytes(std::span(&value, 1));
  constexpr std::array kFunctions{Function::kPut,    Function::kPut,   Function::kPut,
                                  Function::kPut,    Function::kPut,   Function::kInsert,
                                  Function::kInsert, Function::kDelete};
  const Function f = kFunctions[op.draw % kFunctions.size()];
  ++world_.unsure[number];
  log.invoke(env_.now(), process(me), f, key,
             f == Function::kDelete ? Value::none() : Value::integer(1 + std::int64_t{op.id}));
  const Outcome outcome = f == Function::kPut      ? store_->update(me, number, bytes)
                          : f == Function::kInsert ? store_->insert(me, number, bytes)
                                                   : store_->remove(me, number);
  --world_.unsure[number];
  const bool done = outcome == Outcome::kOk;
  // An update of a missing key did not happen; an insertion without room did not happen either.
  const bool failed = outcome == Outcome::kFull || (f == Function::kPut && !done);
  log.complete(env_.now(), process(me), failed ? EventType::kFail : EventType::kOk, f, key,
               failed || f == Function::kPut ? Value::none() : Value::boolean(done));
  ++(failed ? world_.outcome.fail : world_.outcome.ok);
}

}  // namespace pyrdma::loco::scenario
