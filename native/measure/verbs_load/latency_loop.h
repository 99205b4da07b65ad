// One request at a time.
#pragma once
#include "measure/load.h"
#include "measure/verbs_load/connections.h"

namespace pyrdma::measure::verbs_load {

/// mode=latency, measure=completion: from before the post until the completion is polled. It
/// records the rows of run_rate, a histogram named after the operation, and with record_post one
/// named "post".
void run_latency(Env& env, const Load& load, Sender& sender, ThreadRecorder& recorder, Rng rng);

/// mode=latency, measure=pingpong: perftest's write and send latency. The two sides send one
/// message to and fro. The receiver polls the message's last byte in memory (write) or its receive
/// queue (send). The histogram holds halves of round trips. With record_one_way each message
/// carries the sender's time, and the receiver of either side records its own time minus that in a
/// histogram `one_way_<op>`. Its error is that of the two clocks; a negative time is recorded as 0.
void run_ping(Env& env, const Load& load, Sender& sender, const fabric::MemoryRegion* inbox,
              ThreadRecorder& recorder);
/// Runs the replying side. Returns when the peer stops it.
void run_pong(Env& env, const Load& load, Sender& sender, const fabric::MemoryRegion* inbox,
              ThreadRecorder& recorder);

}  // namespace pyrdma::measure::verbs_load
