// Meeting points of all nodes of a run, and lists passed through the rendezvous.
#pragma once
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "measure/params.h"

namespace pyrdma::measure {

inline constexpr Time kSetupPatience =
    120 * kSecond;  // for a peer's part of the set-up, in env.now() time

/// Blocks until every node has come to `place`. Each place of a run is used once. Throws
/// Error(kTimeout).
void rally(Env& env, const Params& params, const std::string& place,
           Time patience = kSetupPatience);

/// Throws Error(kInvalidArgument): the peers run different programs.
[[noreturn]] void throw_piece(const std::string& key, std::size_t got, std::size_t wanted);

/// Publishes `items` under `key` in as many pieces as the rendezvous needs.
template <class T>
void publish_list(fabric::Rendezvous& rendezvous, const std::string& key,
                  const std::vector<T>& items) {
  constexpr std::size_t kPiece = fabric::Rendezvous::kMaxValue / sizeof(T);
  rendezvous.publish_value(key, static_cast<std::uint64_t>(items.size()));
  for (std::size_t first = 0; first < items.size(); first += kPiece) {
    const std::span<const T> piece(items.data() + first, std::min(kPiece, items.size() - first));
    rendezvous.publish(key + '/' + std::to_string(first / kPiece), std::as_bytes(piece));
  }
}

/// The list that a peer published under `key`. Throws Error(kTimeout) after `deadline`.
template <class T>
std::vector<T> await_list(fabric::Rendezvous& rendezvous, const std::string& key, Time deadline) {
  constexpr std::size_t kPiece = fabric::Rendezvous::kMaxValue / sizeof(T);
  std::vector<T> items(rendezvous.await_value<std::uint64_t>(key, deadline));
  for (std::size_t first = 0; first < items.size(); first += kPiece) {
    const std::size_t count = std::min(kPiece, items.size() - first);
    const std::string piece_key = key + '/' + std::to_string(first / kPiece);
    const std::vector<std::byte> piece = rendezvous.await(piece_key, deadline);
    if (piece.size() != count * sizeof(T)) throw_piece(piece_key, piece.size(), count * sizeof(T));
    std::memcpy(items.data() + first, piece.data(), piece.size());
  }
  return items;
}

}  // namespace pyrdma::measure
