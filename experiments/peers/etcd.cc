// One client of etcd that PUTs, one request after another over one connection of gRPC.
//
//   etcd ADDRESS SECONDS
//
// prints "put_latency VALUE", the median in seconds. Keys have 16 bytes and are drawn from a
// million; values have 64 bytes.
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "etcd.grpc.pb.h"

namespace {

constexpr int kKeys = 1'000'000;
constexpr std::size_t kValueBytes = 64;

[[noreturn]] void fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

class Client {
 public:
  explicit Client(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    const auto limit = std::chrono::system_clock::now() + std::chrono::seconds(10);
    if (!channel->WaitForConnected(limit)) fail("no connection within 10 s", address);
    stub_ = etcdserverpb::KV::NewStub(channel);
    request_.set_value(std::string(kValueBytes, 'v'));
  }

  // PUTs for a time and returns the median in nanoseconds.
  std::int64_t median_ns(double seconds) {
    std::vector<std::int64_t> times;
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    for (std::int64_t start = now_ns(); start < end || times.empty(); start = now_ns()) {
      put();
      times.push_back(now_ns() - start);
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

 private:
  void put() {
    char key[17];
    std::snprintf(key, sizeof key, "key-%012d", draw_(random_));
    request_.set_key(key, 16);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    etcdserverpb::PutResponse response;
    const grpc::Status status = stub_->Put(&context, request_, &response);
    if (!status.ok()) fail("a PUT failed", status.error_message());
  }

  std::unique_ptr<etcdserverpb::KV::Stub> stub_;
  etcdserverpb::PutRequest request_;
  std::mt19937 random_{1};
  std::uniform_int_distribution<int> draw_{0, kKeys - 1};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("usage", "etcd ADDRESS SECONDS");
  const double seconds = std::atof(argv[2]);
  Client client(argv[1]);
  client.median_ns(seconds / 4);  // warms the members up
  std::printf("put_latency %.9g\n", static_cast<double>(client.median_ns(seconds)) * 1e-9);
  return 0;
}
