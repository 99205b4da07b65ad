#include "systems/krcore/meta/meta_client.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "systems/krcore/scopes.h"

namespace pyrdma::krcore {

namespace {

constexpr std::size_t kScratch = 256;  // bytes: a bucket or an entry

}  // namespace

MetaClient::MetaClient(Env& env, fabric::ProtectionDomain& domain, const Options& options)
    : env_(env), domain_(domain), options_(options), mutex_(env) {
  scratch_ = env.device().allocate(domain, kScratch);
  links_.resize(options.meta_servers.size());
}

std::unique_ptr<MetaClient::Link> MetaClient::make(NodeId server) {
  auto link = std::make_unique<Link>();
  link->server = server;
  link->completions = env_.device().create_completion_queue(4);
  fabric::QpOptions options;
  options.send_entries = 4;
  options.receive_entries = 1;
  options.max_sges = 1;
  options.timeout_us = options_.timeout_us;
  options.retry_count = options_.retry_count;
  link->qp =
      env_.device().create_queue_pair(domain_, *link->completions, *link->completions, options);
  return link;
}

void MetaClient::put(std::unique_ptr<Link> link) {
  const std::lock_guard<Mutex> lock(mutex_);
  const auto at = std::ranges::find(options_.meta_servers, link->server);
  links_[static_cast<std::size_t>(at - options_.meta_servers.begin())] = std::move(link);
}

std::vector<NodeId> MetaClient::missing() {
  const std::lock_guard<Mutex> lock(mutex_);
  std::vector<NodeId> servers;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] == nullptr || links_[i]->has_failed) servers.push_back(options_.meta_servers[i]);
  }
  return servers;
}

bool MetaClient::read(Link& link, const fabric::RemoteRegion& table, std::uint64_t offset,
                      std::span<std::byte> into) {
  if (into.size() > scratch_->size() || offset + into.size() > table.length) return false;
  ++reads_;
  fabric::Completion completion;
  completion.status = fabric::Status::kGeneral;
  if (link.qp->read(scratch_->sge(0, static_cast<std::uint32_t>(into.size())), table, offset)) {
    env_.poll_until(
        [&] {
          return link.completions->poll({&completion, 1}) == 1;
        },
        kForever, &link.completions->watch());
  }
  if (completion.status != fabric::Status::kSuccess) {
    link.has_failed = true;
    return false;
  }
  std::memcpy(into.data(), scratch_->data(), into.size());
  return true;
}

MetaClient::Answer MetaClient::find(NodeId node, std::span<std::byte> payload, bool is_location) {
  const Scope step(env_, scope::meta_lookup);
  const std::lock_guard<Mutex> lock(mutex_);
  for (const auto& link : links_) {
    if (link == nullptr || link->has_failed) continue;
    const TableAddress& table = is_location ? link->locations : link->targets;
    const HashShape shape{table.buckets, table.entries, static_cast<std::uint32_t>(payload.size())};
    const auto read_table = [&](std::uint64_t offset, std::span<std::byte> into) {
      return read(*link, table.region, offset, into);
    };
    const LookupResult result = look_up(shape, node, payload, read_table);
    if (result == LookupResult::kFound) return Answer::kFound;
    if (result == LookupResult::kAbsent) return Answer::kUnknown;
    link->has_failed = true;
    env_.reached("krcore/meta_server_lost");
  }
  return Answer::kNoServer;
}

MetaClient::Answer MetaClient::target_of(NodeId node, DctMeta& meta) {
  return find(node, std::as_writable_bytes(std::span(&meta, 1)), false);
}

MetaClient::Answer MetaClient::location_of(NodeId node, ValidMrRecord& record) {
  return find(node, std::as_writable_bytes(std::span(&record, 1)), true);
}

}  // namespace pyrdma::krcore
