#include "env/sim/sim_storage.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "env/sim/sim_env.h"

namespace pyrdma {
namespace {

class SimFile final : public File {
 public:
  SimFile(SimEnv& env, std::shared_ptr<std::vector<std::byte>> bytes)
      : env_(env), bytes_(std::move(bytes)) {}

  void write(std::uint64_t offset, std::span<const std::byte> data) override {
    if (offset + data.size() > bytes_->size()) bytes_->resize(offset + data.size());
    if (!data.empty()) std::memcpy(bytes_->data() + offset, data.data(), data.size());
    take(env_.costs().storage_write, data.size());
  }
  std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
    if (offset >= bytes_->size()) return 0;
    const std::size_t count = std::min<std::size_t>(data.size(), bytes_->size() - offset);
    if (count > 0) std::memcpy(data.data(), bytes_->data() + offset, count);
    take(env_.costs().storage_write, count);
    return count;
  }
  void sync() override { take(env_.costs().storage_sync, 0); }
  std::uint64_t size() override { return bytes_->size(); }

 private:
  // The thread sleeps while the disk works.
  void take(Picos fixed, std::size_t bytes) {
    SimScheduler& scheduler = env_.scheduler();
    scheduler.sleep_until(
        scheduler.clock() + fixed +
        static_cast<Picos>(env_.costs().storage_picos_per_byte * static_cast<double>(bytes)));
  }
  SimEnv& env_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

}  // namespace

std::unique_ptr<File> SimStorage::open(std::string_view name) {
  if (name.empty() || name.find('/') != std::string_view::npos || name == "." || name == "..")
    throw Error(
        ErrorCode::kInvalidArgument,
        "file name '" + std::string(name) + "' is not a plain name: use letters, digits, '.', '-'");
  auto& bytes = files_[std::string(name)];
  if (!bytes) bytes = std::make_shared<std::vector<std::byte>>();
  return std::make_unique<SimFile>(env_, bytes);
}

bool SimStorage::exists(std::string_view name) { return files_.find(name) != files_.end(); }

void SimStorage::remove(std::string_view name) {
  if (const auto found = files_.find(name); found != files_.end()) files_.erase(found);
}

}  // namespace pyrdma
