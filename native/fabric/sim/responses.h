// From the target's memory back to the link: acknowledgements, data and errors, in the order of the
// requests. Long reads are answered in chunks, which sample memory as they leave.
#pragma once
#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;

/// What of a queue pair's requests the target is answering.
struct ResponsesState {
  Message* long_read = nullptr;     // being answered, chunk by chunk
  Message* first_behind = nullptr;  // answers that wait for it
  Message* last_behind = nullptr;
};

class Responses {
 public:
  explicit Responses(Nic& nic) : nic_(nic) {}
  /// Sends the executed request back as its response, from `ready` on, behind a long read after its
  /// last chunk.
  void answer(Message& message, Picos ready, Picos now);
  /// The long read's next chunk leaves.
  void continue_read(Message& message, Picos now);

 private:
  void respond(Message& message, Picos ready, Picos now);
  Message& make_chunk(const Message& read);
  static void end_long_read(QueuePairCore& qp, Picos now);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
