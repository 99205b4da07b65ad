// This file has content where the header of libraft is absent. Everything else works there.
#include "systems/erpc/raft/libraft/present.h"

#ifndef PYRDMA_LIBRAFT

#include "base/error.h"
#include "systems/erpc/raft/member.h"

namespace pyrdma::erpc::raft {

std::string raft_problem() {
  return "raft: this build has no Raft, because the header raft.h of libraft 0.15 was missing; "
         "sudo apt-get install -y libraft-dev, and build pyrdma again";
}

std::unique_ptr<Member> open_member(Env& /*env*/, Links& /*links*/, StateMachine& /*state*/,
                                    const MemberOptions& /*options*/) {
  throw Error(ErrorCode::kUnavailable, raft_problem());
}

}  // namespace pyrdma::erpc::raft

#endif
