#include "systems/erpc/fuzz/world.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checksum.h"
#include "base/rng.h"

namespace pyrdma::erpc::scenario {

void fill(std::span<std::byte> bytes, std::uint64_t salt) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof salt) {
    const std::uint64_t word = mix64(salt + at);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
  }
}

bool is_filled(std::span<const std::byte> bytes, std::uint64_t salt) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof salt) {
    const std::uint64_t word = mix64(salt + at);
    if (std::memcmp(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at)) != 0)
      return false;
  }
  return true;
}

std::uint64_t salt_of_request(std::uint32_t number) { return mix64(0x5eedULL + number); }
std::uint32_t response_of_tiny(std::uint32_t bytes) { return bytes * 700; }

World::World(const fuzz::Options& wanted, fuzz::Outcome& result, fuzz::FaultPhase& faults)
    : options(wanted),
      outcome(result),
      phase(faults),
      bugs(Bugs::named(wanted.mutation)),
      shape(draw_shape(wanted)),
      next(wanted.nodes),
      stages(wanted.nodes, Stage::kActs),
      nodes(wanted.nodes),
      endings(wanted.nodes) {
  for (NodeId node = 0; node < wanted.nodes; ++node)
    plans.push_back(draw_plan(wanted, shape, node, faults.pace()));
}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, cluster->now(), text);
}

std::string World::name_of(std::uint32_t number) const {
  const Call& call = calls[number];
  return "request " + std::to_string(number) + " of node " + std::to_string(call.client) + " to " +
         std::to_string(call.server) + " (" + std::to_string(call.request) + " and " +
         std::to_string(call.response) + " bytes, way " +
         std::to_string(static_cast<int>(call.way)) + ")";
}

std::pair<std::uint64_t, std::uint32_t> World::executes(NodeId server, Way way,
                                                        std::span<const std::byte> request) {
  const std::uint64_t salt = checksum(request);
  const auto bytes = static_cast<std::uint32_t>(request.size());
  if (bytes < kNumbered) {
    ++tiny_executed;
    if (!is_filled(request, salt_of_request(0)))
      violation("request bytes", "node " + std::to_string(server) + " got " +
                                     std::to_string(bytes) + " bytes that no client sent");
    return {salt, response_of_tiny(bytes)};
  }
  std::uint32_t number = 0;
  std::memcpy(&number, request.data(), sizeof number);
  if (number >= calls.size() || calls[number].request != bytes ||
      !is_filled(request.subspan(kNumbered), salt_of_request(number))) {
    violation("request bytes", "node " + std::to_string(server) + " got " + std::to_string(bytes) +
                                   " bytes that no client sent, number " + std::to_string(number) +
                                   ", way " + std::to_string(static_cast<int>(way)));
    return {salt, 0};
  }
  Call& call = calls[number];
  if (call.server != server || call.way != way)
    violation("wrong server", name_of(number) + " runs at node " + std::to_string(server));
  if (++call.executed > 1) violation("twice", name_of(number) + " runs again");
  return {salt, call.response};
}

void World::client_died(NodeId node) {
  endpoint_ended(node);
  for (Call& call : calls) {
    if (call.client == node && call.ended == 0) call.is_orphan = true;
  }
}

bool World::all_at(Stage stage) const {
  return std::ranges::all_of(stages, [stage](Stage each) { return each >= stage; });
}

bool World::is_without_memory(const Error& error) const {
  return error.code() == ErrorCode::kExhausted &&
         cluster->fault_counters().reached[static_cast<std::size_t>(Fault::memory_pressure)] != 0;
}

bool World::packets_came_in_order() const {
  constexpr std::array kMayDisturb{Fault::loss,
                                   Fault::loss_burst,
                                   Fault::duplicate,
                                   Fault::reorder,
                                   Fault::corruption,
                                   Fault::qp_error,
                                   Fault::rnr,
                                   Fault::crash,
                                   Fault::host_crash,
                                   Fault::battery_crash,
                                   Fault::partition,
                                   Fault::isolation,
                                   Fault::partition_partial,
                                   Fault::partition_one_way,
                                   Fault::partition_flapping,
                                   Fault::coordinator_down,
                                   Fault::buffer_overflow,
                                   Fault::nic_failure,
                                   Fault::cq_overrun};
  const auto& reached = cluster->fault_counters().reached;
  for (const Fault fault : kMayDisturb) {
    if (reached[static_cast<std::size_t>(fault)] != 0) return false;
  }
  if (endpoints_ended) return false;
  for (NodeId node = 0; node < options.nodes; ++node) {
    const fabric::sim::NicCounters counters = cluster->counters(node);
    if (counters.dropped != 0 || counters.rnr_naks != 0) return false;
  }
  return true;
}

void World::check() {
  outcome.made("outcomes");
  if (tiny_executed > tiny_begun)
    violation("twice", std::to_string(tiny_executed) + " short requests ran; " +
                           std::to_string(tiny_begun) + " were sent");
  for (std::uint32_t number = 0; number < calls.size(); ++number) {
    const Call& call = calls[number];
    const bool is_numbered = call.request >= kNumbered;
    if (call.ended == 0) {
      ++outcome.info;
      if (!call.is_orphan) violation("liveness", name_of(number) + " has not ended");
      continue;
    }
    ++outcome.checked;
    ++(call.outcome == Outcome::kOk ? outcome.ok : outcome.fail);
    if (!is_numbered) continue;
    if (!may_have_run(call.outcome) && call.executed != 0) {
      violation("outcome", name_of(number) + " ended as '" + to_string(call.outcome) +
                               "', and its handler has run");
    }
    if ((call.outcome == Outcome::kOk || call.outcome == Outcome::kResponseSize) &&
        call.executed == 0)
      violation("outcome", name_of(number) + " has an answer, and no handler has run");
  }
}

}  // namespace pyrdma::erpc::scenario
