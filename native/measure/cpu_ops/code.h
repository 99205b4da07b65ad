// Code that stands for the steps of a protocol when instructions per cycle are measured.
#pragma once
#include <array>
#include <cstdint>

namespace pyrdma::measure {

/// A small request handler. Its working set (about 9 KiB) fits in the first-level cache. It mixes
/// what the steps of protocols do: it takes a request from a ring, looks its key up in a hash
/// index, branches by the state that it finds, calls a handler through a virtual function, tests
/// the acknowledgements of eight peers, and writes a completion. A protocol's step takes the same
/// way most times, so the requests repeat after 16, and the branch predictor knows their branches.
class RequestCode {
 public:
  RequestCode();
  void run(std::uint64_t passes);
  std::uint64_t result() const { return sum_; }

 private:
  struct Request {
    std::uint32_t key, kind;
  };
  struct Entry {
    std::uint32_t key, state;
    std::uint64_t value, version;
  };
  struct Done {
    std::uint64_t id, value;
  };
  struct Handler {
    virtual ~Handler() = default;
    virtual std::uint64_t handle(Entry& entry, std::uint64_t now) = 0;
  };
  struct Get;
  struct Put;
  struct Lock;
  Entry& find(std::uint32_t key);
  void pass();

  static constexpr std::uint32_t kRequests = 16, kEntries = 256, kDone = 128, kPeers = 8;
  std::array<Request, kRequests> requests_{};
  std::array<Entry, kEntries> index_{};
  std::array<Done, kDone> done_{};
  std::array<std::uint64_t, kPeers> acknowledged_{};
  std::array<Handler*, 3> handlers_{};
  std::uint64_t now_ = 0, sum_ = 0;
};

}  // namespace pyrdma::measure
