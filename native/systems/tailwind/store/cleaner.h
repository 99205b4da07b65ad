// The cleaner of a primary's memory and of its backups' (RAMCloud's; Rumble, Kejriwal and
// Ousterhout, "Log-structured Memory for DRAM-based Storage", FAST 2014). It has two levels.
// Compaction copies what is of use in one segment to fewer seglets; its replicas stay as they are.
// Combined cleaning moves what is of use in several segments to survivors, and frees the segments
// and their replicas.
//
// The cleaner chooses, judges and moves. Memory, replication and the order of the log are the
// host's. One thread runs it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "systems/tailwind/log/log.h"
#include "systems/tailwind/store/object_manager.h"

namespace pyrdma::tailwind {

/// A segment that may be cleaned.
struct SegmentUse {
  std::uint64_t number = 0;
  std::uint32_t seglets = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t born = 0;
  std::uint32_t first_bytes = 0;   // that name the segment
  std::uint64_t naming_bytes = 0;  // of tombstones, in any segment, that go when it is cleaned
};

/// What the cleaner needs. All functions but finish() are short, and take the log's lock: append()
/// and is_in_log() are called under the locks of keys.
class CleanerHost {
 public:
  virtual ~CleanerHost() = default;
  /// Segments that are closed at all backups, and survivors only after finish() has ended for them:
  /// an object that dies in a survivor gets a tombstone that names the survivor, though the segment
  /// that it came from has a copy. The latter must be gone first.
  virtual std::vector<SegmentUse> candidates() = 0;
  /// A candidate. It stays until compacted() or finish() frees it.
  virtual const Segment& segment(std::uint64_t number) = 0;
  /// Whether replicas of the segment may still be found by a recovery: it is in the log, or was
  /// cleaned and the backups have not freed it, or is a survivor that is not adopted yet.
  virtual bool is_in_log(std::uint64_t number) = 0;
  /// Log::make_survivor() and Log::make_compacted(). Null when no memory is left. The host must
  /// keep seglets for them that clients' appends do not take: otherwise a full memory is never
  /// cleaned.
  virtual std::unique_ptr<Segment> make_survivor() = 0;
  virtual std::unique_ptr<Segment> make_compacted(std::uint64_t number) = 0;
  /// Appends an entry to a segment that one of the two has made, and counts its live_bytes. Returns
  /// 0 when the segment or the memory is full.
  virtual Place append(Segment& survivor, const NewEntry& entry) = 0;
  /// The compacted segment replaces the one with its number: Log::adopt(). Nobody uses the memory
  /// of the latter any more but the host's own sends. Its replicas stay; one that is copied later,
  /// after the loss of a backup, has the bytes of the compacted one. So replicas of one segment may
  /// differ: an offset in one has no meaning in another.
  virtual void compacted(std::unique_ptr<Segment> segment) = 0;
  /// All that was of use in `cleaned` is in `survivors`. The host must, in this order:
  /// 1. make a head with a higher number than the survivors have, and open it at all its backups:
  ///    a closed segment behind the head would say that the head is missing (find_log());
  /// 2. bring the survivors to backups, as copies that count from their close on, and close them;
  /// 3. adopt() them and free() `cleaned`, and only then make another head: its digest has the
  ///    survivors and lacks `cleaned`. A digest with both would be correct, too; one with neither
  ///    loses data. All that the log had when finish() was called must be committed by then;
  /// 4. free the replicas of `cleaned` when that head is open and the last one closed at all their
  ///    backups. From then on is_in_log() of `cleaned` is false.
  virtual void finish(std::span<const std::uint64_t> cleaned,
                      std::vector<std::unique_ptr<Segment>> survivors) = 0;
};

/// The memory of a log.
struct MemoryUse {
  std::uint32_t seglet = LogMemory::kSeglet;  // bytes
  std::uint32_t seglets = 0;  // that clients' appends may take, the used ones among them
  std::uint32_t free = 0;     // of those
  std::uint32_t spare = 0;    // seglets for the cleaner
  std::uint32_t segments = 0, most_segments = 0;  // at backups
  bool wants_room = false;                        // an append has failed
  std::uint64_t drops = 0;  // counts what has made entries useless, for whoever waits for more
};
struct CleaningJob {
  std::optional<std::uint64_t> compaction;
  std::vector<std::uint64_t> cleaning;
};
/// RAMCloud's rule (LogCleaner::doWork): there is work when less than `clean_below` of the memory
/// is free, or when the backups have 95 % of the segments that they may have. Combined cleaning
/// does it if the backups are that full. Otherwise the job does that frees the most memory for a
/// byte that it copies: compaction at first, then combined cleaning, as tombstones take more and
/// more of the memory, which only go with the segments that they name.
bool needs_cleaning(const MemoryUse& memory, double clean_below);
CleaningJob choose_job(std::span<const SegmentUse> segments, const MemoryUse& memory,
                       std::uint64_t newest, std::uint32_t capacity);

/// The segment with the most seglets to reclaim per byte that must be copied, or nothing if none
/// has a seglet to reclaim. `capacity`: of a segment, bytes; `seglet`: too.
std::optional<std::uint64_t> choose_compaction(std::span<const SegmentUse> segments,
                                               std::uint32_t capacity,
                                               std::uint32_t seglet = LogMemory::kSeglet);
/// Segments by cost and benefit, (1 - u) * age / (1 + u), whose live bytes are `most_live` or less
/// together; the oldest first. None if they would not free more than they take. `newest`: the
/// number of the head.
std::vector<std::uint64_t> choose_cleaning(std::span<const SegmentUse> segments,
                                           std::uint64_t newest, std::uint64_t most_live,
                                           std::uint32_t capacity);
/// Those with the most memory to reclaim per live byte, young or old, else as choose_cleaning().
std::vector<std::uint64_t> choose_merging(std::span<const SegmentUse> segments,
                                          std::uint64_t most_live, std::uint32_t capacity,
                                          std::uint32_t seglet = LogMemory::kSeglet);

/// Ends before the log's memory. A job under way takes its survivors along, and the objects in
/// them: nobody may use the store then.
class Cleaner {
 public:
  Cleaner(CleanerHost& host, ObjectManager& objects, Bugs bugs = {})
      : host_(host), objects_(objects), bugs_(bugs) {}

  /// Begin a job, which run() does. Require is_idle().
  void compact(std::uint64_t number);
  void clean(std::span<const std::uint64_t> numbers);
  bool is_idle() const { return sources_.empty(); }
  /// Does the job; returns false when no memory is left. Another run() then goes on: what has moved
  /// cannot go back, since tombstones may name its new segment.
  bool run();

 private:
  void list(std::uint64_t number);
  bool move(Place place);
  Place copy(const Entry& entry);

  CleanerHost& host_;
  ObjectManager& objects_;
  const Bugs bugs_;
  std::vector<std::uint64_t> sources_;
  bool is_compaction_ = false;
  std::uint64_t born_ = 0;  // of the entry that is moved
  std::vector<std::unique_ptr<Segment>> survivors_;
  std::vector<Place> items_;
  std::size_t source_ = 0, item_ = 0;  // what is next
  bool is_listed_ = false;
};

}  // namespace pyrdma::tailwind
