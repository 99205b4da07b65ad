// The driver of the logs' scenario: who loses power when, and who starts again.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "systems/spindle/dds/external_client.h"
#include "systems/spindle/fuzz/logs_world.h"

namespace pyrdma::spindle::scenario {

void LogsWorld::pass(Env& env, std::uint64_t most_us) {
  env.sleep_until(env.now() + static_cast<Time>(rng_.below(most_us)) * kMicrosecond);
}

// A sync of a node fails, and its process ends. The next one opens the files without a power
// failure, and joins the others.
void LogsWorld::fail_disk(Env& env) {
  const auto node = static_cast<NodeId>(rng_.below(count()));
  if (is_split_ || groups_[node] == nullptr || !has_begun_[node]) return;
  fails_[node] = true;
  const Time patience = env.now() + 5 * kMillisecond;
  while (fails_[node] && env.now() < patience) env.sleep_until(env.now() + 10 * kMicrosecond);
  const bool has_failed = !fails_[node];
  fails_[node] = false;
  if (!has_failed) return;  // it has synced nothing
  tell_what_runs();
  cluster_->kill(node, fabric::sim::Crash::kProcess);
  groups_[node] = nullptr;
  running_[node] = {};
  has_begun_[node] = false;
  comes_back_[node] = true;
  phase_.crashed();
  cluster_->restart(node);
  pass(env, 20'000);
}

void LogsWorld::drive(Env& env) {
  while (!is_last()) {
    const bool is_at_join = (rng_.below(2) == 0 || (grows_ && round_ == 0)) && wait_for_joiner(env);
    pass(env, !is_at_join ? 10'000 : rng_.below(2) == 0 ? 20 : 300);
    if (rng_.below(3) == 0) fail_disk(env);
    std::vector<NodeId> order = all_;
    for (NodeId i = count() - 1; i > 0; --i)
      std::swap(order[i], order[rng_.below(std::uint64_t{i} + 1)]);
    // First those that have what a joiner lacks.
    if (is_at_join) {
      std::stable_partition(order.begin(), order.end(), [this](NodeId node) {
        return has_begun_[node] && topic_.has_subscriber(node);
      });
    }
    const bool is_at_once = rng_.below(3) == 0;
    for (const NodeId node : order) {
      tell_what_runs();
      // A process that ends alone leaves what it has written: its log may be longer than others.
      const bool is_alone = rng_.below(6) == 0;
      cluster_->kill(node, is_alone ? fabric::sim::Crash::kProcess : fabric::sim::Crash::kHost);
      groups_[node] = nullptr;
      running_[node] = {};
      phase_.crashed();
      if (is_at_once) continue;
      // The others may have time for a view without it. Often the power fails as that begins.
      if (rng_.below(is_at_join && node == order.front() ? 2 : 4) == 0) {
        wait_for_view(env);
        pass(env, rng_.below(3) == 0 ? 150'000 : is_at_join ? 5'000 : 500);
      } else {
        pass(env, 1'000);
      }
    }
    ++round_;
    oracle_.all_have_crashed();
    had_published_ = has_published_;
    // Joiners may lack what the others have, and often the longest log comes late. Too few starters
    // wait for the others.
    if (is_at_join)
      std::ranges::reverse(order);
    else if (rng_.below(4) != 0)
      std::ranges::stable_sort(order, {}, [this](NodeId node) { return oracle_.durable(node); });
    const std::size_t late = rng_.below(4) == 0 ? 0 : 1 + rng_.below(std::uint64_t{count()} / 2);
    starters_.assign(order.begin(), order.end() - static_cast<std::ptrdiff_t>(late));
    late_.assign(order.end() - static_cast<std::ptrdiff_t>(late), order.end());
    has_begun_.assign(count(), false);
    comes_back_.assign(count(), false);
    is_refused_ = has_formed_[0] = has_formed_[1] = false;
    formed_ = 0;
    is_split_ = !is_last() && rng_.below(4) == 0;
    for (const NodeId node : is_split_ ? all_ : starters_) cluster_->restart(node);
    if (is_split_) continue;
    const Time patience = env.now() + 600 * kMillisecond;
    while (formed_ < starters_.size() && !is_refused_ && env.now() < patience)
      env.sleep_until(env.now() + 10 * kMicrosecond);
    if (!is_last() && !is_refused_ && rng_.below(4) == 0) continue;  // they stay away
    for (const NodeId node : late_) {
      pass(env, 500);
      cluster_->restart(node);
    }
  }
}

void LogsWorld::tell_what_runs() {
  for (const Running& each : running_) oracle_.runs(each.view, each.members);
  const auto newest = std::ranges::max_element(running_, {}, &Running::view);
  for (const NodeId node : topic_.subscribers) {
    if (newest->view != 0 && groups_[node] != nullptr && groups_[node]->view_id() == newest->view)
      oracle_.entered(node, newest->view);
  }
}

// Until a node is in a view that has members before it has its state. Returns false if none comes.
bool LogsWorld::wait_for_joiner(Env& env) {
  const Time patience = env.now() + 20 * kMillisecond;
  while (env.now() < patience) {
    bool has_member = false, has_joiner = false;
    for (const NodeId node : all_) {
      const bool is_in = groups_[node] != nullptr && groups_[node]->standing() == Standing::kMember;
      has_member = has_member || (is_in && has_begun_[node]);
      has_joiner = has_joiner || (is_in && !has_begun_[node]);
    }
    if (has_member && has_joiner) return true;
    env.sleep_until(env.now() + 5 * kMicrosecond);
  }
  return false;
}

// Until a node that lives enters a view.
void LogsWorld::wait_for_view(Env& env) {
  const auto newest = [this] {
    std::uint64_t id = 0;
    for (Group* group : groups_) {
      if (group != nullptr) id = std::max(id, group->view_id());
    }
    return id;
  };
  const std::uint64_t before = newest();
  const Time patience = env.now() + 150 * kMillisecond;
  while (newest() <= before && env.now() < patience) env.sleep_until(env.now() + 10 * kMicrosecond);
}

// A client publishes through any node. In the last round it ends after some samples.
void LogsWorld::be_client(Env& env) {
  Rng rng = env.rng("client");
  dds::ExternalClient client(env, group_options(), {topic_}, all_);
  std::uint32_t last = 0;
  for (std::uint32_t number = 0; !is_last() || last < 3; ++number) {
    env.sleep_until(env.now() + static_cast<Time>(rng.below(8'000)) * kMicrosecond);
    const std::string text = "client.0." + std::to_string(number) + '.';
    last += is_last() ? 1 : 0;
    if (!options_.keeps(operations_++)) continue;
    oracle_.published(text);
    try {
      client.publish(0, std::as_bytes(std::span(text)), 30 * kMillisecond);
      has_published_ = true;
      acknowledged(text);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
    }
  }
  is_client_over_ = true;
}

// All members of the newest view have delivered the sample, in it or before it.
void LogsWorld::acknowledged(const std::string& text) {
  std::uint64_t newest = 0;
  std::vector<NodeId> members;
  for (const NodeId node : topic_.subscribers) {
    Group* group = groups_[node];
    if (group == nullptr || !has_begun_[node] || group->standing() != Standing::kMember) continue;
    if (group->view_id() > newest) members.clear();
    newest = std::max(newest, group->view_id());
    if (group->view_id() == newest) members.push_back(node);
  }
  for (const NodeId node : members) oracle_.acknowledged(node, text);
}

}  // namespace pyrdma::spindle::scenario
