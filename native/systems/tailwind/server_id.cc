#include "systems/tailwind/server_id.h"

#include "base/error.h"

namespace pyrdma::tailwind {

namespace {

void expect_below(const char* what, NodeId node, std::uint32_t value, std::uint32_t bound) {
  if (value < bound) return;
  throw Error(ErrorCode::kInvalidArgument,
              "tailwind: the " + std::string(what) + " of node " + std::to_string(node) + " is " +
                  std::to_string(value) + "; give less than " + std::to_string(bound) +
                  ", in a new process or a new run of the node if it has used them up");
}

}  // namespace

ServerId ServerId::of_server(NodeId node, std::uint32_t incarnation, std::uint32_t life) {
  expect_below("incarnation", node, incarnation, kIncarnations);
  expect_below("life of the server", node, life, kServers);
  return {node, incarnation * kLives + life};
}

ServerId ServerId::of_client(NodeId node, std::uint32_t incarnation, std::uint32_t number) {
  expect_below("incarnation", node, incarnation, kIncarnations);
  expect_below("number of a client", node, number, kClients);
  return {node, incarnation * kLives + kServers + number};
}

}  // namespace pyrdma::tailwind
