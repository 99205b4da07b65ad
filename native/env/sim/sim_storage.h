// The simulated disk: bytes in memory, with the profile's latencies. Faults come with the fault
// model.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/sim/event_queue.h"
#include "env/storage.h"

namespace pyrdma {

class SimEnv;

class SimStorage final : public Storage {
 public:
  explicit SimStorage(SimEnv& env) : env_(env) {}
  std::unique_ptr<File> open(std::string_view name) override;
  bool exists(std::string_view name) override;
  void remove(std::string_view name) override;
  void crash(bool) {}
  void set_full_until(Picos) {}
  void preserve(const std::string&, std::span<const std::byte>) {}

 private:
  SimEnv& env_;
  std::map<std::string, std::shared_ptr<std::vector<std::byte>>, std::less<>> files_;
};

}  // namespace pyrdma
