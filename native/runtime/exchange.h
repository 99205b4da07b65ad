// Lists of plain data that nodes exchange at set-up. They go through the rendezvous, under names
// that both nodes know. Each name is used once. Blocking calls take a deadline in Env::now() time.
#pragma once
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "env/env.h"
#include "fabric/fabric.h"

namespace pyrdma::runtime {

inline constexpr Time kSetupTimeout = 120 * kSecond;  // wait for a peer at set-up

/// Throws Error(kInvalidArgument) because the nodes run different programs.
[[noreturn]] void throw_piece(const std::string& key, std::size_t got, std::size_t wanted);

/// The published form of a list: `key` holds the number of items and the first items; `key`/1,
/// `key`/2, ... hold the rest. A short list is one value.
template <class T>
struct ListPieces {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::size_t kCount = sizeof(std::uint64_t);
  static constexpr std::size_t kFirst = (fabric::Rendezvous::kMaxValue - kCount) / sizeof(T);
  static constexpr std::size_t kPiece = fabric::Rendezvous::kMaxValue / sizeof(T);
  static_assert(kFirst > 0);
};

/// Publishes `items` under `key`. Throws as Rendezvous::publish does.
template <class T>
void publish_list(Env& env, const std::string& key, std::span<const T> items) {
  using Pieces = ListPieces<T>;
  fabric::Rendezvous& rendezvous = env.device().rendezvous();
  const std::size_t first = std::min(items.size(), Pieces::kFirst);
  const auto count = static_cast<std::uint64_t>(items.size());
  std::vector<std::byte> value(Pieces::kCount + first * sizeof(T));
  std::memcpy(value.data(), &count, Pieces::kCount);
  if (first != 0) std::memcpy(value.data() + Pieces::kCount, items.data(), first * sizeof(T));
  for (std::size_t at = first, piece = 1; at < items.size(); ++piece) {
    const std::size_t more = std::min(Pieces::kPiece, items.size() - at);
    rendezvous.publish(key + '/' + std::to_string(piece), std::as_bytes(items.subspan(at, more)));
    at += more;
  }
  rendezvous.publish(key, value);  // last: a reader that finds this value finds the rest too
}
template <class T>
void publish_list(Env& env, const std::string& key, const std::vector<T>& items) {
  publish_list(env, key, std::span<const T>(items));
}

/// Returns the list whose value under `key` is `head`.
template <class T>
std::vector<T> read_list(Env& env, const std::string& key, const std::vector<std::byte>& head,
                         Time deadline) {
  using Pieces = ListPieces<T>;
  std::uint64_t count = 0;
  if (head.size() < Pieces::kCount) throw_piece(key, head.size(), Pieces::kCount);
  std::memcpy(&count, head.data(), Pieces::kCount);
  const auto first = static_cast<std::size_t>(std::min<std::uint64_t>(count, Pieces::kFirst));
  if (head.size() != Pieces::kCount + first * sizeof(T))
    throw_piece(key, head.size(), Pieces::kCount + first * sizeof(T));
  std::vector<T> items(first);
  if (first != 0) std::memcpy(items.data(), head.data() + Pieces::kCount, first * sizeof(T));
  for (std::size_t piece = 1; items.size() < count; ++piece) {
    const std::string piece_key = key + '/' + std::to_string(piece);
    const auto more =
        static_cast<std::size_t>(std::min<std::uint64_t>(Pieces::kPiece, count - items.size()));
    const std::vector<std::byte> bytes = env.device().rendezvous().await(piece_key, deadline);
    if (bytes.size() != more * sizeof(T)) throw_piece(piece_key, bytes.size(), more * sizeof(T));
    const std::size_t at = items.size();
    items.resize(at + more);
    std::memcpy(items.data() + at, bytes.data(), bytes.size());
  }
  return items;
}

/// Waits for the list under `key`. Throws Error(kTimeout), naming the key, after `deadline`, and
/// Error(kInvalidArgument) if the list holds items of another type.
template <class T>
std::vector<T> await_list(Env& env, const std::string& key, Time deadline) {
  return read_list<T>(env, key, env.device().rendezvous().await(key, deadline), deadline);
}

/// Returns the list if it is published by now.
template <class T>
std::optional<std::vector<T>> find_list(Env& env, const std::string& key) {
  const auto head = env.device().rendezvous().find(key);
  if (!head) return std::nullopt;
  return read_list<T>(env, key, *head, env.now() + kSetupTimeout);
}

/// Lists that this node and one peer exchange once, under a name that no other exchange between the
/// two uses.
class Exchange {
 public:
  Exchange(Env& env, const std::string& name, NodeId peer);
  template <class T>
  void tell(const std::vector<T>& items) const {
    publish_list(env_, to_peer_, items);
  }
  /// Throws Error(kTimeout), naming the peer, after `deadline`.
  template <class T>
  std::vector<T> await(Time deadline) const {
    try {
      return await_list<T>(env_, from_peer_, deadline);
    } catch (const Error& error) {
      throw_of_peer(error);
    }
  }
  template <class T>
  std::optional<std::vector<T>> find() const {
    return find_list<T>(env_, from_peer_);
  }

 private:
  [[noreturn]] void throw_of_peer(const Error& error) const;
  Env& env_;
  NodeId peer_;
  std::string to_peer_, from_peer_;
};

}  // namespace pyrdma::runtime
