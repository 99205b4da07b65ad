// HMAC-SHA256 (FIPS 180-4, RFC 2104), which shows that a message comes from who knows a secret.
// Here, since a wheel that runs on any machine can link no library of cryptography; it sees some
// hundred bytes per message of the set-up, none of the data path.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace pyrdma::fabric::verbs {

using Digest = std::array<std::byte, 32>;

/// SHA-256 of the parts, one after the other.
Digest sha256(std::initializer_list<std::span<const std::byte>> parts);
/// HMAC-SHA256 of the parts, one after the other, under `key` of any length.
Digest hmac(std::span<const std::byte> key,
            std::initializer_list<std::span<const std::byte>> parts);
/// Compares in a time that does not tell where they differ.
bool equal(const Digest& a, const Digest& b);

}  // namespace pyrdma::fabric::verbs
