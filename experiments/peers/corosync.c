/* A member of a closed process group of Corosync, which multicasts to all members in agreed order.
 *
 *   corosync SIZE SECONDS MEMBERS
 *
 * connects to the daemon of its node, joins, and waits until the group has MEMBERS processes, one a
 * node. Then each of them sends messages of SIZE bytes as fast as its daemon takes them. The member
 * of the lowest node tells all when to begin and to end the count. It does so by messages in the
 * same order, so that all count the same ones. Each prints
 *
 *   member NODE RATE COUNT ORDER
 *
 * with the messages that it was given per second, its own included, their number, and a digest of
 * the order of their senders. COUNT and ORDER of all members must be equal. Each member checks that
 * no message of a sender is lost, repeated or early.
 */
#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMaxNode = 16, kMaxSize = 1 << 20, kBurst = 16 };
static const int64_t kPatienceNs = INT64_C(20000000000);
/* The daemons learn the size of packets up to 0.2 s after the group is complete. */
static const int64_t kWarmUpNs = INT64_C(300000000);

enum Kind { kCounted, kBegin, kEnd };
struct Header {    /* the beginning of each message */
  uint64_t number; /* among the messages of its sender */
  uint64_t kind;
};

static cpg_handle_t handle;
static size_t members; /* that the group has now */
static uint32_t lowest = UINT32_MAX;
static uint64_t expected[kMaxNode + 1]; /* the next number of each node */
static int64_t begun_ns;
static int64_t ended_ns;
static uint64_t count;
static uint64_t order = UINT64_C(14695981039346656037); /* the start of FNV-1a */

static void fail(const char* what, const char* why) {
  fprintf(stderr, "corosync: %s: %s\n", what, why);
  exit(1);
}

static void check(cs_error_t error, const char* what) {
  if (error != CS_OK) fail(what, cs_strerror(error));
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* --- what the daemon tells ----------------------------------------------------------------- */

static void on_message(cpg_handle_t from, const struct cpg_name* group, uint32_t node, uint32_t pid,
                       void* message, size_t bytes) {
  (void)from, (void)group, (void)pid;
  struct Header header;
  if (bytes < sizeof header || node > kMaxNode) fail("a message", "another program has sent it");
  memcpy(&header, message, sizeof header);
  if (header.number != expected[node]++) fail("a message", "one is lost, repeated or early");
  if (header.kind == kBegin) begun_ns = now_ns();
  if (header.kind == kEnd) ended_ns = now_ns();
  if (header.kind != kCounted || begun_ns == 0 || ended_ns != 0) return;
  ++count;
  order = (order ^ node) * UINT64_C(1099511628211);
}

static void on_change(cpg_handle_t from, const struct cpg_name* group,
                      const struct cpg_address* present, size_t present_count,
                      const struct cpg_address* left, size_t left_count,
                      const struct cpg_address* joined, size_t joined_count) {
  (void)from, (void)group, (void)left, (void)joined, (void)joined_count;
  if (left_count != 0 && ended_ns == 0) fail("the group", "a member has left it");
  members = present_count;
  for (size_t i = 0; i < present_count; ++i) {
    if (present[i].nodeid < lowest) lowest = present[i].nodeid;
  }
}

/* --- joining ------------------------------------------------------------------------------- */

static cs_error_t open_connection(void) {
  cpg_callbacks_t callbacks = {on_message, on_change};
  return cpg_initialize(&handle, &callbacks);
}

static cs_error_t join(void) {
  const struct cpg_name group = {.length = 6, .value = "pyrdma"};
  return cpg_join(handle, &group);
}

/* Takes a step again until it succeeds: the daemon has been started just before. The process that
 * has started it has become this one, so it is a child of this one.
 */
static void retry(cs_error_t (*step)(void), const char* what) {
  const int64_t limit = now_ns() + kPatienceNs;
  for (cs_error_t error; (error = step()) != CS_OK; usleep(5000)) {
    if (waitpid(-1, NULL, WNOHANG) > 0) fail(what, "the daemon has ended");
    if (now_ns() > limit) fail(what, cs_strerror(error));
  }
}

/* Takes what has come; waits for it for at most `wait_ms`. */
static void deliver(int fd, int wait_ms) {
  struct pollfd ready = {.fd = fd, .events = POLLIN};
  if (wait_ms != 0 && poll(&ready, 1, wait_ms) == 0) return;
  const cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ALL);
  if (error != CS_ERR_TRY_AGAIN) check(error, "cpg_dispatch");
}

/* --- the measurement ----------------------------------------------------------------------- */

/* Returns what the next message says. */
static enum Kind next_kind(uint32_t me, int64_t start_ns, double seconds) {
  static enum Kind said = kCounted;
  if (me != lowest || said == kEnd) return kCounted;
  const int64_t now = now_ns();
  if (said == kCounted && now - start_ns >= kWarmUpNs) return said = kBegin;
  if (begun_ns != 0 && (double)(now - begun_ns) >= seconds * 1e9) return said = kEnd;
  return kCounted;
}

/* Sends until the end has come. The daemon refuses a message while too many are on their way. */
static void send_all(int fd, uint32_t me, size_t size, double seconds) {
  char* message = calloc(size, 1);
  if (message == NULL) fail("a message", "no memory");
  const struct iovec part = {message, size};
  const int64_t start_ns = now_ns();
  struct Header header = {0, kCounted};
  int refused = 0;
  while (ended_ns == 0) {
    for (int i = 0; i < kBurst; ++i) {
      if (!refused) header.kind = next_kind(me, start_ns, seconds);
      memcpy(message, &header, sizeof header);
      const cs_error_t error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
      refused = error == CS_ERR_TRY_AGAIN;
      if (refused) break;
      check(error, "cpg_mcast_joined");
      ++header.number;
    }
    deliver(fd, refused);
    if (now_ns() - start_ns > kPatienceNs + (int64_t)(seconds * 2e9)) {
      fail("the messages", "they take too long");
    }
  }
  free(message);
}

int main(int argc, char** argv) {
  if (argc != 4) fail("usage", "corosync SIZE SECONDS MEMBERS");
  const size_t size = strtoul(argv[1], NULL, 10);
  const double seconds = strtod(argv[2], NULL);
  const size_t wanted = strtoul(argv[3], NULL, 10);
  if (size < sizeof(struct Header) || size > kMaxSize) fail("SIZE", "from 16 to 1048576");
  if (seconds <= 0 || wanted < 1 || wanted > kMaxNode) fail("usage", "SECONDS or MEMBERS");
  retry(open_connection, "cpg_initialize");
  retry(join, "cpg_join");
  int fd = -1;
  uint32_t me = 0;
  check(cpg_fd_get(handle, &fd), "cpg_fd_get");
  check(cpg_local_get(handle, &me), "cpg_local_get");
  const int64_t limit = now_ns() + kPatienceNs;
  while (members < wanted) {
    deliver(fd, 10);
    if (now_ns() > limit) fail("the group", "too few members within 20 s");
  }
  send_all(fd, me, size, seconds);
  const double rate = (double)count * 1e9 / (double)(ended_ns - begun_ns);
  printf("member %" PRIu32 " %.9g %" PRIu64 " %" PRIu64 "\n", me, rate, count, order);
  cpg_finalize(handle);
  return 0;
}
