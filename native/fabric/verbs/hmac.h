// HMAC-SHA256 (FIPS 180-4, RFC 2104) proves that the sender of a message knows a secret. It is
// implemented here because a portable wheel cannot link a cryptographic library. It processes a few
// hundred bytes per set-up message and is not used on the data path.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace pyrdma::fabric::verbs {

using Digest = std::array<std::byte, 32>;

/// Returns the SHA-256 of the concatenated parts.
Digest sha256(std::initializer_list<std::span<const std::byte>> parts);
/// Returns the HMAC-SHA256 of the concatenated parts under `key` of any length.
Digest hmac(std::span<const std::byte> key,
            std::initializer_list<std::span<const std::byte>> parts);
/// Compares in a time that does not depend on where the digests differ.
bool equal(const Digest& a, const Digest& b);

}  // namespace pyrdma::fabric::verbs
