// The checks of a request before its post (section 4.4): a bad one would end the shared queue pair
// for all its users. They find the physical keys.
#include <mutex>

#include "fabric/post_rules.h"
#include "systems/krcore/scopes.h"
#include "systems/krcore/service.h"

namespace pyrdma::krcore {

using fabric::Opcode;
using fabric::Status;

Status Service::check(Vqp& v, const fabric::WorkRequest& request, Time now, Checked& out) {
  const bool is_message = fabric::is_one_of(request.opcode, fabric::kSends);
  out.request = &request;
  out.bytes = 0;
  out.pieces = 0;
  out.rkey = request.rkey;
  out.ticket = 0;
  out.kind = is_message ? Prepared::Kind::kMessage : Prepared::Kind::kUser;
  out.message = MessageKind::kData;
  out.opcode = is_message ? Opcode::kSend : request.opcode;
  out.is_signaled = (request.flags & fabric::kSignaled) != 0;
  if (!fabric::is_one_of(request.opcode, fabric::allowed_opcodes(fabric::Transport::kRc)) ||
      !fabric::has_pieces_up_to(std::min(v.options.max_sges, kMostSges), request))
    return options_.bugs.has(Bug::kNoCheck) ? Status::kSuccess : Status::kLocalQpOperation;
  out.pieces = request.sge_count;
  for (std::uint32_t i = 0; i < out.pieces; ++i) out.bytes += request.sges[i].length;
  const bool returns = fabric::is_one_of(request.opcode, fabric::kReturning);
  const bool is_inline = (request.flags & fabric::kInline) != 0;
  if (is_inline && (returns || out.bytes > std::min(v.options.max_inline, max_inline_)))
    return Status::kLocalQpOperation;
  const bool is_checked = is_message || !options_.bugs.has(Bug::kNoCheck);
  for (std::uint32_t i = 0; i < out.pieces; ++i) {
    out.lkeys[i] = request.sges[i].lkey;
    if (is_checked && !is_inline &&
        !regions_->check(request.sges[i], returns, v.options.domain, out.lkeys[i]))
      return Status::kLocalProtection;
  }
  return is_message ? check_message(request, out) : check_one_sided(v, request, now, out);
}

Status Service::check_one_sided(Vqp& v, const fabric::WorkRequest& request, Time now,
                                Checked& out) {
  if (options_.bugs.has(Bug::kNoCheck)) return Status::kSuccess;
  if (out.bytes > max_message_) return Status::kLocalLength;
  if (fabric::is_one_of(request.opcode, fabric::kAtomics)) {
    if (out.bytes != 8) return Status::kLocalLength;
    if (request.remote_addr % 8 != 0) return Status::kRemoteInvalidRequest;
  }
  if (v.region.key != request.rkey || !knows_region(v, now)) {
    const Status status = find_region(v, request.rkey, now, v.region);
    if (status != Status::kSuccess) return status;
  }
  const RegionRecord& record = v.region.entry.record;
  if (options_.check_regions && !allows(record, request.opcode, request.remote_addr, out.bytes))
    return Status::kRemoteAccess;
  out.rkey = record.rkey;
  return Status::kSuccess;
}

// The receiver's buffers are the kernel's: a header tells it whose message this is. A long payload
// is announced, and the receiver reads it (section 4.5).
Status Service::check_message(const fabric::WorkRequest& request, Checked& out) {
  const bool is_inline = (request.flags & fabric::kInline) != 0;
  if (out.bytes > max_message_) return Status::kLocalLength;
  if (out.bytes <= options_.zero_copy_above || is_inline) return Status::kSuccess;
  if (request.sge_count != 1)
    return out.bytes <= options_.message_bytes ? Status::kSuccess : Status::kLocalLength;
  out.message = MessageKind::kZeroCopy;
  return Status::kSuccess;
}

Status Service::find_region(Vqp& v, std::uint32_t key, Time now, KnownRegion& region) {
  Connection of = connection_of(v);
  region.node = of.node;
  region.epoch = of.epoch;
  region.key = key;
  region.entry.expires = 0;  // until it is found
  region.forgotten = forgotten_.load(std::memory_order_acquire);
  if (of.node == fabric::kNoNode) return Status::kFlushed;
  CoreState& core = *core_states_[v.pool.load(std::memory_order_acquire)->core];
  if (of.life) {
    const std::lock_guard<Mutex> lock(core.store_mutex);
    if (const MrStore::Entry* known = core.store.find(of.node, *of.life, key, now)) {
      region.entry = *known;
      return Status::kSuccess;
    }
  }
  region.was_looked_up = true;
  const Scope step(env_, scope::region_miss);
  ++counters_.region_misses;
  const Time asked = env_.now();
  if (!has_way(v, of)) return Status::kRetryExceeded;
  const LookupResult result = look_up_region(v, of, key, region.entry.record);
  if (result == LookupResult::kFailed) return Status::kRetryExceeded;
  if (result == LookupResult::kAbsent) return Status::kRemoteAccess;
  // Without checks the store only translates keys.
  region.entry.expires = options_.check_regions ? lease_.end(asked, env_) : kForever;
  region.entry.life = *of.life;
  const std::lock_guard<Mutex> lock(core.store_mutex);
  core.store.put(of.node, key, region.entry);
  return Status::kSuccess;
}

}  // namespace pyrdma::krcore
