// Requests of the owner to the library, and their ends.
#include "systems/erpc/raft/libraft/libraft_member.h"

#ifdef PYRDMA_LIBRAFT

#include <cstring>
#include <utility>

#include "systems/erpc/scopes.h"

namespace pyrdma::erpc::raft {

namespace {

Outcome outcome_of(int status) {
  switch (status) {
    case 0:
      return Outcome::kDone;
    case RAFT_NOTLEADER:
      return Outcome::kNotLeader;
    case RAFT_CANTCHANGE:
    case RAFT_BUSY:
      return Outcome::kBusy;
    case RAFT_BADID:
    case RAFT_BADROLE:
    case RAFT_DUPLICATEID:
    case RAFT_DUPLICATEADDRESS:
    case RAFT_NOTFOUND:
    case RAFT_INVALID:
      return Outcome::kInvalid;
    default:
      return Outcome::kUnknown;
  }
}

}  // namespace

// Called by the library when a request has ended. The owner's callback runs at the end of the turn.
void LibraftMember::finish(Request* request, int status) {
  std::unique_ptr<Request> owned(request);
  owned->outcome = outcome_of(status);
  finished_.push_back(std::move(owned));
}

std::unique_ptr<LibraftMember::Request> LibraftMember::make_request(
    std::function<void(Outcome)> done) {
  auto request = std::make_unique<Request>();
  request->member = this;
  request->done = [done = std::move(done)](Outcome outcome, const KvAnswer&) { done(outcome); };
  return request;
}

// The library owns a request that it has taken.
Outcome LibraftMember::accept(std::unique_ptr<Request>& request, int status) {
  watch();
  if (status != 0) return outcome_of(status);
  request.release();
  return Outcome::kAccepted;
}

Outcome LibraftMember::propose(ByteView command,
                               std::function<void(Outcome, const KvAnswer&)> done) {
  Scope step(env_, scope::raft_propose);
  if (!running()) return Outcome::kNotLeader;
  if (command.empty() || command.size() > kMaxPayload) return Outcome::kInvalid;
  if (!leads()) return Outcome::kNotLeader;
  auto request = make_request([](Outcome) {});
  request->done = std::move(done);
  request->apply.data = request.get();
  struct raft_buffer buffer {};
  buffer.len = command.size();
  buffer.base = lib_.take(command.size());
  std::memcpy(buffer.base, command.data(), command.size());
  const int status = lib_.apply(&raft_, &request->apply, &buffer, 1,
                                [](struct raft_apply* apply, int result, void*) {
                                  auto* ended = static_cast<Request*>(apply->data);
                                  if (result == 0) ended->answer = ended->member->result_;
                                  ended->member->finish(ended, result);
                                });
  if (status != 0) lib_.free(buffer.base);
  return accept(request, status);
}

Outcome LibraftMember::barrier(std::function<void(Outcome)> done) {
  if (!leads()) return Outcome::kNotLeader;
  auto request = make_request(std::move(done));
  request->barrier.data = request.get();
  const int status =
      lib_.barrier(&raft_, &request->barrier, [](struct raft_barrier* barrier, int result) {
        auto* ended = static_cast<Request*>(barrier->data);
        ended->member->finish(ended, result);
      });
  return accept(request, status);
}

// The library calls it at the end of each kind of change.
void LibraftMember::change_ended(struct raft_change* change, int status) {
  auto* ended = static_cast<Request*>(change->data);
  ended->member->finish(ended, status);
}

Outcome LibraftMember::add(NodeId node, std::function<void(Outcome)> done) {
  if (!leads()) return Outcome::kNotLeader;
  if (!may_change()) return Outcome::kBusy;
  auto request = make_request(std::move(done));
  const std::uint64_t id = std::uint64_t{node} + 1;
  if (raft_.configuration.n >= kMaxServers) return Outcome::kInvalid;
  request->change.data = request.get();
  const int status = lib_.add(&raft_, &request->change, id, address_of(id).c_str(), &change_ended);
  return accept(request, status);
}

Outcome LibraftMember::assign(NodeId node, Role role, std::function<void(Outcome)> done) {
  if (!leads()) return Outcome::kNotLeader;
  if (!may_change()) return Outcome::kBusy;
  auto request = make_request(std::move(done));
  request->change.data = request.get();
  const int status = lib_.assign(&raft_, &request->change, std::uint64_t{node} + 1,
                                 static_cast<int>(role), &change_ended);
  return accept(request, status);
}

Outcome LibraftMember::remove(NodeId node, std::function<void(Outcome)> done) {
  if (!leads()) return Outcome::kNotLeader;
  if (!may_change()) return Outcome::kBusy;
  auto request = make_request(std::move(done));
  request->change.data = request.get();
  const int status = lib_.remove(&raft_, &request->change, std::uint64_t{node} + 1, &change_ended);
  return accept(request, status);
}

Outcome LibraftMember::transfer(NodeId node, std::function<void(Outcome)> done) {
  if (!leads()) return Outcome::kNotLeader;
  auto request = make_request(std::move(done));
  request->transfer.data = request.get();
  const int status = lib_.transfer(&raft_, &request->transfer, std::uint64_t{node} + 1,
                                   [](struct raft_transfer* transfer) {
                                     auto* ended = static_cast<Request*>(transfer->data);
                                     ended->member->finish(ended, 0);
                                   });
  return accept(request, status);
}

}  // namespace pyrdma::erpc::raft

#endif
