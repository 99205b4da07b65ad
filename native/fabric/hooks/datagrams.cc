#include "fabric/hooks/datagrams.h"

#include <algorithm>
#include <cstring>

#include "fabric/post_rules.h"

namespace pyrdma::fabric::hooks {

Datagrams::Datagrams(HookState& hooks, ProtectionDomain& inner_domain, QueuePair& inner,
                     const QpOptions& options, SendCount& count)
    : hooks_(hooks),
      inner_(inner),
      options_(options),
      max_datagram_(hooks.inner.capabilities().max_datagram),
      count_(count),
      memory_(
          hooks.inner.allocate(inner_domain, std::size_t{kCopies} * max_datagram_, kLocalWrite)),
      copies_(kCopies) {
  for (std::size_t i = 0; i < kCopies; ++i) copies_[i].sge = memory_->sge(i * max_datagram_, 0);
  hooks_.late.add(*this);
}

Datagrams::~Datagrams() { close(); }

void Datagrams::close() {
  hooks_.late.remove(*this);
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  hooks_.late.change(-static_cast<int>(delayed_.size() + reordered_.size()));
  delayed_.clear();
  reordered_.clear();
}

// Returns true for a request that the provider will accept and send, as far as copying depends on
// it.
bool Datagrams::is_sound(const WorkRequest& request, std::uint64_t& bytes) const {
  if (!is_one_of(request.opcode, kSends) || request.address_handle == nullptr ||
      !has_pieces_up_to(options_.max_sges, request)) {
    return false;
  }
  bytes = 0;
  for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
  const bool is_inline = (request.flags & kInline) != 0;
  return bytes <= max_datagram_ && (!is_inline || bytes <= options_.max_inline);
}

Fault Datagrams::draw() {
  for (const Fault fault :
       {Fault::loss, Fault::corruption, Fault::duplicate, Fault::delay, Fault::reorder}) {
    if (hooks_.gate.fire(fault)) return fault;
  }
  return Fault::kCount;
}

Datagrams::Copy* Datagrams::copy(const WorkRequest& request, std::uint64_t bytes, Fault fault) {
  const std::uint64_t completed = count_.completed.load(std::memory_order_acquire);
  const auto free = std::find_if(copies_.begin(), copies_.end(), [completed](const Copy& copy) {
    return !copy.waits && completed >= copy.after;
  });
  if (free == copies_.end()) return nullptr;
  Copy& copy = *free;
  std::byte* to = memory_->data() + (copy.sge.addr - memory_->addr());
  for (std::uint32_t i = 0; i < request.sge_count; to += request.sges[i++].length) {
    const Sge& sge = request.sges[i];
    if (sge.length == 0) continue;
    if ((request.flags & kInline) != 0)
      std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
    else if (!hooks_.regions.copy(sge, to))
      return nullptr;
  }
  copy.sge.length = static_cast<std::uint32_t>(bytes);
  copy.handle = static_cast<const FaultyAddressHandle*>(request.address_handle)->inner;
  copy.request = request;
  copy.request.sges = &copy.sge;
  copy.request.sge_count = bytes == 0 ? 0 : 1;
  copy.request.flags = 0;
  copy.request.address_handle = copy.handle.get();
  copy.fault = fault;
  copy.overtaken = false;
  return &copy;
}

bool Datagrams::send(Copy& copy) {
  copy.waits = false;
  copy.after = count_.signaled.load(std::memory_order_acquire) + 1;
  return inner_.post({&copy.request, 1}).accepted == 1;
}

// The original has been posted. It is lost unless the fault is a duplicate.
void Datagrams::act(Copy& copy, Time due) {
  switch (copy.fault) {
    case Fault::corruption: {
      const std::uint64_t bit =
          hooks_.gate.below(Fault::corruption, std::uint64_t{copy.sge.length} * 8);
      memory_->data()[copy.sge.addr - memory_->addr() + bit / 8] ^=
          static_cast<std::byte>(1U << bit % 8);
      [[fallthrough]];
    }
    case Fault::duplicate:
      if (send(copy)) hooks_.gate.reach(copy.fault);
      return;
    default:
      copy.waits = true;
      copy.due = due;
      hooks_.late.change(1);
      if (copy.fault == Fault::delay)
        delayed_.push_back(&copy);
      else
        reordered_.push_back(&copy);
  }
}

PostResult Datagrams::post(std::span<const WorkRequest> requests) {
  const std::lock_guard lock(mutex_);
  if (!hooks_.late.empty()) send_due_locked(hooks_.gate.env().now());
  PostResult result;
  for (const WorkRequest& given : requests) {
    WorkRequest request = given;
    request.address_handle = unwrap(given.address_handle);
    std::uint64_t bytes = 0;
    Copy* copied = nullptr;
    Fault fault = Fault::kCount;
    Time due = 0;
    if (is_sound(given, bytes)) {
      const bool behind = !delayed_.empty();
      fault = behind ? Fault::delay : draw();
      if (fault == Fault::corruption && bytes == 0) fault = Fault::kCount;
      if (fault != Fault::kCount && fault != Fault::loss) {
        copied = copy(given, bytes, fault);
        if (copied == nullptr) fault = Fault::kCount;  // no room: the original goes unchanged
      }
      if (behind)
        due = delayed_.back()->due;
      else if (fault == Fault::delay || fault == Fault::reorder)
        due = hooks_.gate.env().now() + hooks_.gate.duration(fault);
    }
    // A queue pair has one qkey. The receiver drops a datagram with another one silently.
    if (fault != Fault::kCount && fault != Fault::duplicate)
      request.remote_qkey = ~request.remote_qkey & 0x7fffffff;
    const PostResult one = inner_.post({&request, 1});
    if (one.accepted == 0) {
      result.error = one.error;
      return result;
    }
    ++result.accepted;
    if ((request.flags & kSignaled) != 0) count_.signaled.fetch_add(1, std::memory_order_acq_rel);
    if (fault == Fault::loss) hooks_.gate.reach(fault);
    if (copied != nullptr) act(*copied, due);
    if (fault == Fault::kCount || fault == Fault::duplicate)
      for (Copy* copy : reordered_) copy->overtaken = true;
  }
  return result;
}

void Datagrams::send_due(Time now) {
  const std::lock_guard lock(mutex_);
  send_due_locked(now);
}

void Datagrams::send_due_locked(Time now) {
  if (inner_.state() != QpState::kReadyToSend) return;  // a reset queue pair alone could send them
  while (!delayed_.empty() && delayed_.front()->due <= now) {
    Copy& copy = *delayed_.front();
    delayed_.pop_front();
    hooks_.late.change(-1);
    if (send(copy)) hooks_.gate.reach(copy.fault);
  }
  std::erase_if(reordered_, [this, now](Copy* copy) {
    if (copy->due > now) return false;
    hooks_.late.change(-1);
    if (send(*copy) && copy->overtaken) hooks_.gate.reach(copy->fault);
    return true;
  });
}

}  // namespace pyrdma::fabric::hooks
