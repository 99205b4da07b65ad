#include "measure/rally.h"

#include "base/error.h"

namespace pyrdma::measure {

// Node 0 gathers and releases: 2 messages per node, where all-to-all would need the square. It
// awaits its own release as well, so that it starts with the others.
void rally(Env& env, const Params& params, const std::string& place, Time patience) {
  fabric::Rendezvous& rendezvous = env.device().rendezvous();
  const Time deadline = env.now() + patience;
  const std::string key = params.key("rally/" + place + '/');
  if (env.node() != 0) {
    rendezvous.publish_value(key + std::to_string(env.node()), std::uint8_t{1});
  } else {
    for (NodeId peer = 1; peer < env.nodes(); ++peer) {
      rendezvous.await_value<std::uint8_t>(key + std::to_string(peer), deadline);
    }
    rendezvous.publish_value(key + "all", std::uint8_t{1});
  }
  rendezvous.await_value<std::uint8_t>(key + "all", deadline);
}

void throw_piece(const std::string& key, std::size_t got, std::size_t wanted) {
  throw Error(ErrorCode::kInvalidArgument,
              "rendezvous key '" + key + "' holds " + std::to_string(got) + " bytes where " +
                  std::to_string(wanted) + " were expected: the nodes run different programs");
}

}  // namespace pyrdma::measure
