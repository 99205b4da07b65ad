// The target returns acknowledgements, data and errors in the order of the requests. The target
// answers a long read in chunks, and samples the memory of each chunk when the chunk leaves.
#pragma once
#include <algorithm>

#include "env/sim/event_queue.h"

namespace pyrdma::fabric::sim {

class Nic;
class QueuePairCore;
struct Message;

/// The answers of a queue pair's requests that the target has not sent yet.
/// A reset does not change this state: the target sends the answers, and the initiator ignores
/// them.
class ResponsesState {
 public:
  /// The answers leave one after another. Returns the time at which an answer has left that takes
  /// `wire` on the link and could have left by `left`.
  Picos in_order(Picos left, Picos wire) { return left_ = std::max(left_ + wire, left); }

 private:
  friend class Responses;
  Picos left_ = 0;                   // the last answer left at this time
  Message* long_read_ = nullptr;     // the target answers this read chunk by chunk
  Message* first_behind_ = nullptr;  // answers that wait for the long read
  Message* last_behind_ = nullptr;
};

class Responses {
 public:
  explicit Responses(Nic& nic) : nic_(nic) {}
  /// Sends the executed request back as its response, from `ready` on. An answer behind a long read
  /// waits for the read's last chunk.
  void answer(Message& message, Picos ready, Picos now);
  /// A repeated read has come: the requester has gone back, and takes none of the answers behind
  /// it. Abandons them, as a NIC does; the requester asks for each of them again.
  void abandon(QueuePairCore& qp);
  /// Sends the next chunk of a long read.
  void continue_read(Message& message, Picos now);

 private:
  void respond(Message& message, Picos ready, Picos now);
  Message& make_chunk(const Message& read, QueuePairCore& target);
  Picos fetch(const Message& piece, Picos now);
  static void end_long_read(QueuePairCore& qp, Picos now);
  Nic& nic_;
};

}  // namespace pyrdma::fabric::sim
