/* A topic of Cyclone DDS between two processes of one machine: one writes, the other reads.
 *
 *   cyclonedds SIZE SECONDS rate|latency
 *
 * prints the named value: "rate VALUE", in samples of SIZE octets that the reader takes per
 * second, or "latency VALUE", the median of half a round trip of such a sample, in seconds.
 * CYCLONEDDS_URI says through which interface. Both sides are reliable. For the rate they keep all
 * samples, so that a writer waits when the reader is late. A sample carries its number in its first
 * and its last octets, and the reader checks that each number follows the one before. Listeners
 * take the samples on the thread that receives them, so that no other thread must be woken.
 */
#define _GNU_SOURCE
#include "cyclonedds.h"

#include <dds/dds.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kTaken = 128, kMaxTrips = 1 << 22, kLeastTrips = 100 };
static const uint64_t kLast = UINT64_MAX; /* number of the sample that ends a measurement */

static uint32_t size;
static double seconds;
static pid_t reading; /* the other process, in the one that writes */

/* What the two processes tell each other beside DDS. */
struct Shared {
  atomic_int matched;  /* the reader knows the writer */
  atomic_int measured; /* the reader has counted for long enough */
  atomic_int ended;    /* the last sample has come */
};
static struct Shared* shared;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "cyclonedds: %s: %s\n", what, why);
  _exit(1); /* handlers of exit could wait for the thread that is here */
}

static int32_t check(int32_t value, const char* what) {
  if (value < 0) fail(what, dds_strretcode(-value));
  return value;
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int reader_has_ended(void) {
  siginfo_t info = {.si_pid = 0};
  if (reading == 0) return 0;
  return waitid(P_PID, (id_t)reading, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

/* Waits until the flag is set, or the reader has ended without setting it. */
static void await(atomic_int* flag) {
  const int64_t limit = now_ns() + (int64_t)(seconds * 2e9) + INT64_C(20000000000);
  for (; !atomic_load(flag); usleep(500)) {
    if (reader_has_ended() && !atomic_load(flag)) fail("the reader", "it has ended");
    if (now_ns() > limit) fail("a wait", "the other process is silent");
  }
}

/* --- samples ------------------------------------------------------------------------------- */

static peer_Sample new_sample(void) {
  peer_Sample sample = {{._maximum = size, ._length = size, ._buffer = calloc(size, 1)}};
  if (sample.payload._buffer == NULL) fail("a sample", "no memory");
  return sample;
}

static void write_numbered(dds_entity_t writer, peer_Sample* sample, uint64_t number) {
  memcpy(sample->payload._buffer, &number, sizeof number);
  memcpy(sample->payload._buffer + size - sizeof number, &number, sizeof number);
  check(dds_write(writer, sample), "dds_write");
}

static uint64_t number_of(const peer_Sample* sample) {
  uint64_t first = 0;
  uint64_t last = 0;
  if (sample->payload._length != size) fail("a sample", "its size is wrong");
  memcpy(&first, sample->payload._buffer, sizeof first);
  memcpy(&last, sample->payload._buffer + size - sizeof last, sizeof last);
  if (first != last) fail("a sample", "its beginning and its end are of two samples");
  return first;
}

/* Calls `each` for every sample that waits in the reader. */
static void take(dds_entity_t reader, void (*each)(uint64_t number)) {
  void* samples[kTaken];
  dds_sample_info_t infos[kTaken];
  int32_t count = kTaken;
  while (count == kTaken) {
    samples[0] = NULL; /* the reader lends its memory */
    count = check(dds_take(reader, samples, infos, kTaken, kTaken), "dds_take");
    for (int32_t i = 0; i < count; ++i) {
      if (infos[i].valid_data) each(number_of(samples[i]));
    }
    if (count > 0) check(dds_return_loan(reader, samples, count), "dds_return_loan");
  }
}

/* --- one side of a topic ------------------------------------------------------------------- */

/* A round trip has one sample on its way. To keep all would stop it: after some samples a writer
 * waits for acknowledgements, which the thread of the listener that writes would have to receive.
 */
static dds_qos_t* reliable(const char* topic_name) {
  dds_qos_t* qos = dds_create_qos();
  dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
  const int is_rate = strcmp(topic_name, "rate") == 0;
  dds_qset_history(qos, is_rate ? DDS_HISTORY_KEEP_ALL : DDS_HISTORY_KEEP_LAST, is_rate ? 0 : 1);
  return qos;
}

static dds_entity_t topic(dds_entity_t participant, const char* name) {
  return check(dds_create_topic(participant, &peer_Sample_desc, name, NULL, NULL), name);
}

static dds_entity_t new_writer(dds_entity_t participant, const char* name) {
  dds_qos_t* qos = reliable(name);
  const dds_entity_t writer =
      check(dds_create_writer(participant, topic(participant, name), qos, NULL), name);
  dds_delete_qos(qos);
  return writer;
}

static dds_entity_t new_reader(dds_entity_t participant, const char* name,
                               dds_on_data_available_fn listens) {
  dds_qos_t* qos = reliable(name);
  dds_listener_t* listener = dds_create_listener(NULL);
  dds_lset_data_available(listener, listens);
  const dds_entity_t reader =
      check(dds_create_reader(participant, topic(participant, name), qos, listener), name);
  dds_delete_listener(listener);
  dds_delete_qos(qos);
  return reader;
}

/* Ends the calls of a reader's listener, and waits for one that runs. The end of the other process
 * is data too: a call for it could otherwise use the reader while this process deletes it.
 */
static void stop_listening(dds_entity_t reader) {
  check(dds_set_listener(reader, NULL), "dds_set_listener");
}

/* Waits for the other process: a writer keeps no sample for a reader that comes later. */
static void await_match(dds_entity_t entity, int is_writer) {
  const int64_t limit = now_ns() + INT64_C(20000000000);
  for (uint32_t matched = 0; matched == 0; usleep(1000)) {
    if (is_writer) {
      dds_publication_matched_status_t status;
      check(dds_get_publication_matched_status(entity, &status), "a writer's status");
      matched = status.current_count;
    } else {
      dds_subscription_matched_status_t status;
      check(dds_get_subscription_matched_status(entity, &status), "a reader's status");
      matched = status.current_count;
    }
    if (now_ns() > limit) fail("discovery", "the processes did not find each other within 20 s");
  }
}

/* --- the rate ------------------------------------------------------------------------------ */

/* Only the thread that receives samples uses these. */
static uint64_t expected;
static uint64_t counted_from;
static int64_t first_ns;
static int64_t counted_ns;

/* Counts the samples of `seconds`, after a warm-up of a quarter of that time. */
static void count(uint64_t number) {
  if (number == kLast) {
    atomic_store(&shared->ended, 1);
    return;
  }
  if (number != expected) fail("a sample", "one is lost, repeated or out of order");
  ++expected;
  if (expected % 32 != 0 || atomic_load(&shared->measured)) return; /* the clock costs time */
  const int64_t now = now_ns();
  if (first_ns == 0) first_ns = now;
  if (counted_ns == 0 && (double)(now - first_ns) >= seconds * 0.25e9) {
    counted_ns = now;
    counted_from = expected;
  }
  const double passed = (double)(now - counted_ns);
  if (counted_ns != 0 && passed >= seconds * 1e9) {
    printf("rate %.9g\n", (double)(expected - counted_from) * 1e9 / passed);
    atomic_store(&shared->measured, 1);
  }
}

static void on_counted(dds_entity_t reader, void* unused) {
  (void)unused;
  take(reader, count);
}

static void read_rate(dds_entity_t participant) {
  const dds_entity_t reader = new_reader(participant, "rate", on_counted);
  await_match(reader, 0);
  atomic_store(&shared->matched, 1);
  await(&shared->ended);
  stop_listening(reader);
}

static void write_rate(dds_entity_t participant) {
  const dds_entity_t writer = new_writer(participant, "rate");
  await_match(writer, 1);
  await(&shared->matched);
  peer_Sample sample = new_sample();
  for (uint64_t number = 0; !atomic_load(&shared->measured); ++number) {
    write_numbered(writer, &sample, number);
    /* A writer whose reader is gone for long does not wait any more. */
    if (number % 1024 == 0 && reader_has_ended()) fail("the reader", "it has ended");
  }
  write_numbered(writer, &sample, kLast);
  dds_write_flush(writer); /* a batch would wait for the next sample */
  await(&shared->ended);
  free(sample.payload._buffer);
}

/* --- the latency --------------------------------------------------------------------------- */

static dds_entity_t other_way;
static peer_Sample reply;
static int64_t* trips;
static size_t trip_count;
static int64_t sent_ns;

static void answer(uint64_t number) { write_numbered(other_way, &reply, number); }

static void on_question(dds_entity_t reader, void* unused) {
  (void)unused;
  take(reader, answer);
}

static void read_latency(dds_entity_t participant) {
  reply = new_sample();
  other_way = new_writer(participant, "pong");
  const dds_entity_t reader = new_reader(participant, "ping", on_question);
  await_match(reader, 0);
  await_match(other_way, 1);
  atomic_store(&shared->matched, 1);
  await(&shared->ended);
  stop_listening(reader);
}

/* The answer to one sample starts the next. */
static void next_trip(uint64_t number) {
  const int64_t now = now_ns();
  if (number != expected) fail("an answer", "one is lost, repeated or out of order");
  if (expected == 0) first_ns = now;
  const double passed = (double)(now - first_ns);
  if (passed >= seconds * 0.25e9 && trip_count < kMaxTrips) trips[trip_count++] = now - sent_ns;
  ++expected;
  if (passed >= seconds * 1.25e9 && trip_count >= kLeastTrips) {
    atomic_store(&shared->ended, 1);
    return;
  }
  sent_ns = now_ns();
  write_numbered(other_way, &reply, expected);
}

static void on_answer(dds_entity_t reader, void* unused) {
  (void)unused;
  take(reader, next_trip);
}

static int ascending(const void* a, const void* b) {
  const int64_t left = *(const int64_t*)a;
  const int64_t right = *(const int64_t*)b;
  return (left > right) - (left < right);
}

static void write_latency(dds_entity_t participant) {
  trips = malloc(kMaxTrips * sizeof *trips);
  if (trips == NULL) fail("the times", "no memory");
  reply = new_sample();
  other_way = new_writer(participant, "ping");
  const dds_entity_t reader = new_reader(participant, "pong", on_answer);
  await_match(reader, 0);
  await_match(other_way, 1);
  await(&shared->matched);
  sent_ns = now_ns();
  write_numbered(other_way, &reply, 0);
  await(&shared->ended);
  stop_listening(reader);
  qsort(trips, trip_count, sizeof *trips, ascending);
  printf("latency %.9g\n", (double)trips[trip_count / 2] * 0.5e-9);
}

/* --- two processes ------------------------------------------------------------------------- */

static void run(void (*side)(dds_entity_t participant)) {
  const dds_entity_t participant =
      check(dds_create_participant(DDS_DOMAIN_DEFAULT, NULL, NULL), "dds_create_participant");
  side(participant);
  check(dds_delete(participant), "dds_delete");
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 4) fail("usage", "cyclonedds SIZE SECONDS rate|latency");
  size = (uint32_t)strtoul(argv[1], NULL, 10);
  seconds = strtod(argv[2], NULL);
  if (size < 16 || seconds <= 0) fail("usage", "a SIZE of 16 or more, and SECONDS above 0");
  const int is_rate = strcmp(argv[3], "rate") == 0;
  if (!is_rate && strcmp(argv[3], "latency") != 0) fail("an unknown measurement", argv[3]);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("mmap", "failed");
  const pid_t child = fork(); /* before this process has a thread of DDS */
  if (child < 0) fail("fork", "failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(is_rate ? read_rate : read_latency);
    return 0;
  }
  reading = child;
  run(is_rate ? write_rate : write_latency);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("the reader", "it has failed");
  return 0;
}
