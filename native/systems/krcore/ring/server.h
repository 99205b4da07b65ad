// The daemon's end of the ring of one application.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "systems/krcore/app.h"
#include "systems/krcore/ring/layout.h"

namespace pyrdma::krcore::ring {

/// Carries out the calls of one application, whose memory may hold anything. One thread.
class Server {
 public:
  /// `give` hands the memory of a new registration to the application. Initialises `shared`.
  Server(Service& service, Shared& shared, std::function<void(const Registration&)> give);

  /// Carries out a call, if there is one, and publishes what has completed. Returns whether there
  /// was anything. Never throws what the application has caused.
  bool serve();
  /// Whether completions or messages may come without a call.
  bool awaits() const { return signaled_ != 0 || receives_ != 0; }
  bool awaits_completions() const { return signaled_ != 0; }
  /// Calls and slots that no correct application writes.
  std::uint64_t malformed() const { return malformed_; }

 private:
  /// What a slot held when the daemon looked, once.
  struct Request {
    Command command;
    fabric::Opcode opcode;
    std::uint8_t work_flags;
    bool is_last;
    std::uint32_t queue, length, lkey, rkey;
    std::uint64_t wr_id, local_addr, remote_addr, first, second;
  };
  struct OwnQueue {
    std::uint32_t signaled = 0;  // requests under way that will complete
    std::uint32_t receives = 0;  // posted
  };
  bool take_call();
  void carry_out(std::span<const Request> call);
  void push(std::span<const Request> call);
  void receive(std::span<const Request> call);
  void answer(std::span<const std::uint64_t> values);
  OwnQueue& own(std::uint32_t queue);
  void publish_completions(std::uint32_t number, OwnQueue& queue);
  void publish_messages(std::uint32_t number, OwnQueue& queue, std::vector<std::uint32_t>& replies);
  bool publish();
  std::uint64_t room() const;
  CompletionSlot& next_slot();
  void publish_slot(CompletionSlot& slot);

  App app_;
  Env& env_;
  Shared& shared_;
  std::function<void(const Registration&)> give_;
  std::map<std::uint32_t, OwnQueue> queues_;
  std::map<std::uint32_t, Registration> regions_;
  std::vector<Request> call_;
  std::vector<App::Target> targets_;
  std::vector<fabric::WorkRequest> list_;
  std::vector<fabric::ReceiveRequest> receive_list_;
  std::vector<fabric::Sge> sges_;
  std::uint64_t position_ = 0, calls_ = 0, published_ = 0, malformed_ = 0;
  std::uint64_t signaled_ = 0, receives_ = 0;
};

}  // namespace pyrdma::krcore::ring
