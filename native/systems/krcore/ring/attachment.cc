#include "systems/krcore/ring/attachment.h"

#include <unistd.h>

#include <array>
#include <mutex>
#include <new>

#include "base/error.h"

namespace pyrdma::krcore::ring {

namespace {

constexpr int kAnswerMs = 10'000;
constexpr std::uint64_t kPage = 4096;

ThreadEnvOptions with_clock() {
  ThreadEnvOptions options;
  options.clock = Clock::calibrate();
  return options;
}

}  // namespace

Attachment::Attachment(const std::string& path)
    : env_(with_clock(), *this), mutex_(env_), socket_(connect_to(path)) {
  Note note;
  std::array<Descriptor, 2> files;
  if (receive_files(socket_.get(), note, files, kAnswerMs) != 2 || note.key != 0) {
    throw Error(ErrorCode::kUnavailable,
                "krcore: the daemon at " + path +
                    " turned this process away: it serves processes of its own user, at most 256");
  }
  if (note.version != kVersion || note.bytes != sizeof(Shared)) {
    throw Error(ErrorCode::kUnavailable, "krcore: the daemon's ring has version " +
                                             std::to_string(note.version) +
                                             ", and this library has " + std::to_string(kVersion) +
                                             "; install one version of pyrdma for both");
  }
  memory_ = fabric::shm::Mapping::adopt(files[0].release(), sizeof(Shared));
  doorbell_ = std::move(files[1]);
  if (memory_ == nullptr)
    throw Error(ErrorCode::kUnavailable, "krcore: the daemon at " + path + " gave no sealed file");
  application_ = std::make_unique<Application>(
      env_, *std::launder(reinterpret_cast<Shared*>(memory_->data())), *this);
}

std::byte* Attachment::take_memory(std::uint32_t key, std::uint64_t bytes) {
  const std::lock_guard<Mutex> lock(mutex_);
  Note note;
  std::array<Descriptor, 2> files;
  if (receive_files(socket_.get(), note, files, kAnswerMs) != 1 || note.key != key) return nullptr;
  auto memory =
      fabric::shm::Mapping::adopt(files[0].release(), (bytes + kPage - 1) / kPage * kPage);
  if (memory == nullptr) return nullptr;
  std::byte* const data = memory->data();
  regions_[key] = std::move(memory);
  return data;
}

void Attachment::give_back(std::uint32_t key) {
  const std::lock_guard<Mutex> lock(mutex_);
  regions_.erase(key);
}

void Attachment::ring_doorbell() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(doorbell_.get(), &one, sizeof one);
}

bool Attachment::has_daemon() { return !has_hung_up(socket_.get()); }

}  // namespace pyrdma::krcore::ring
