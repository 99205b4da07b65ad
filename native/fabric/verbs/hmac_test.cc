#include "fabric/verbs/hmac.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pyrdma::fabric::verbs {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", std::to_integer<unsigned>(byte));
    text += two;
  }
  return text;
}

TEST(VerbsHmac, Sha256OfTheStandardsExamples) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256({bytes_of("abc")})),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  EXPECT_EQ(hex(sha256({bytes_of(two_blocks)})),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256({bytes_of(std::string(1'000'000, 'a'))})),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The cases are 1, 2 and 6 of RFC 4231.
TEST(VerbsHmac, ExamplesOfRfc4231) {
  EXPECT_EQ(hex(hmac(bytes_of(std::string(20, '\x0b')), {bytes_of("Hi There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac(bytes_of("Jefe"), {bytes_of("what do ya "), bytes_of("want for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac(bytes_of(std::string(131, '\xaa')),
                     {bytes_of("Test Using Larger Than Block-Size Key - Hash Key First")})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(VerbsHmac, EqualSeesEveryBit) {
  const Digest a = sha256({});
  for (std::size_t i = 0; i < a.size(); ++i) {
    Digest b = a;
    b[i] ^= std::byte{0x80};
    EXPECT_FALSE(equal(a, b));
  }
  EXPECT_TRUE(equal(a, sha256({})));
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
