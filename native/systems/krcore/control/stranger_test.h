// A node beside those with services, which tests let send datagrams as it likes.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "systems/krcore/fuzz/stranger.h"

namespace pyrdma::krcore {

using scenario::Stranger;

inline std::string key_of(NodeId node, std::uint32_t life = 0) {
  return scenario::port_key(Options().name, node, life);
}

/// The port of a node's service.
inline fabric::QpAddress port_of(Env& env, NodeId node) {
  return env.device().rendezvous().await_value<fabric::QpAddress>(key_of(node),
                                                                  env.now() + kSecond);
}

/// The services wait for this node, which has none, when they boot.
inline void seem_booted(Env& env) {
  env.device().rendezvous().publish_value(Options().name + "/booted/" + std::to_string(env.node()),
                                          std::uint8_t{1});
}

/// Sends a message of the control path to a node's service.
inline void send(Env& env, Stranger& stranger, NodeId to, ControlMessage message) {
  message.sum = sum_of(message);
  EXPECT_TRUE(stranger.send(port_of(env, to), std::as_bytes(std::span(&message, 1))));
}

}  // namespace pyrdma::krcore
