// A process's way to the daemon of its node.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "env/thread/thread_env.h"
#include "fabric/shm/segment.h"
#include "systems/krcore/ring/application.h"
#include "systems/krcore/ring/socket.h"

namespace pyrdma::krcore::ring {

/// An application in a process of its own, which has neither a device nor a service.
class Attachment final : public Link, public ThreadHost {
 public:
  /// `path` is that of a Daemon. Throws Error(kUnavailable) when nobody listens there, or turns
  /// this process away.
  explicit Attachment(const std::string& path);
  Application& application() { return *application_; }
  Env& env() { return env_; }

 private:
  std::byte* take_memory(std::uint32_t key, std::uint64_t bytes) override;
  void give_back(std::uint32_t key) override;
  void ring_doorbell() override;
  bool has_daemon() override;
  void on_slow_turn() override {}
  bool crowded() const override { return true; }  // the daemon needs a core, too
  void thread_runs(int) override {}

  ThreadEnv env_;
  Mutex mutex_;
  Descriptor socket_, doorbell_;
  std::shared_ptr<fabric::shm::Mapping> memory_;
  std::map<std::uint32_t, std::shared_ptr<fabric::shm::Mapping>> regions_;
  std::unique_ptr<Application> application_;
};

}  // namespace pyrdma::krcore::ring
