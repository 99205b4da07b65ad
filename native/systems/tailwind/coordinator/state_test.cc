// The coordinator's state: each command against a model, after a restart each time; a power failure
// at each operation of the disk; and files that are cut, damaged or hostile.
#include "systems/tailwind/coordinator/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/hostile_test.h"
#include "base/rng.h"
#include "runtime/worlds_test.h"

namespace pyrdma::tailwind {
namespace {

using Servers = std::vector<ServerId>;
constexpr const char* kFile = "coordinator";

/// The power fails at an operation of the disk.
struct PowerFailure {};

/// A disk in memory, which a test can copy.
class FakeDisk final : public Storage {
 public:
  enum class Crash { kProcess, kLosesUnsynced, kTearsUnsynced };
  static constexpr std::uint64_t kForever = ~std::uint64_t{0};

  FakeDisk() = default;
  FakeDisk(const FakeDisk& other) : names_(copy(other.names_)), durable_(copy(other.durable_)) {
    // Names of one file before a copy are names of one file after it.
    for (auto& [name, content] : durable_) {
      for (const auto& [now, same] : other.names_) {
        if (same == other.durable_.at(name)) content = names_.at(now);
      }
    }
  }
  FakeDisk& operator=(const FakeDisk&) = delete;

  std::unique_ptr<File> open(std::string_view name) override {
    auto found = names_.find(std::string(name));
    if (found == names_.end()) {
      count();
      found = names_.emplace(name, std::make_shared<Content>()).first;
    }
    return std::make_unique<OpenFile>(*this, found->second);
  }
  bool exists(std::string_view name) override { return names_.contains(std::string(name)); }
  void remove(std::string_view name) override {
    count();
    names_.erase(std::string(name));
  }
  void rename(std::string_view from, std::string_view to) override {
    count();
    auto content = names_.at(std::string(from));
    names_.erase(std::string(from));
    names_[std::string(to)] = std::move(content);
  }
  void sync() override {
    count();
    durable_ = names_;
  }

  /// The power fails after `operations` more.
  void fail_after(std::uint64_t operations) { left_ = operations; }
  void fail_next_file_sync() { is_failing_ = true; }
  void crash(Crash crash, Rng& rng) {
    left_ = kForever;
    if (crash == Crash::kProcess) return;
    if (crash == Crash::kLosesUnsynced || rng.below(2) == 0) names_ = durable_;
    durable_ = names_;
    for (auto& [name, content] : names_) {
      if (crash == Crash::kTearsUnsynced) tear(*content, rng);
      content->now = content->durable;
      content->synced = content->now.size();
    }
  }
  Bytes read(const std::string& name) const { return names_.at(name)->now; }
  void write(const std::string& name, Bytes bytes) {
    names_[name] = durable_[name] = std::make_shared<Content>(Content{bytes, bytes, bytes.size()});
  }

 private:
  struct Content {
    Bytes now, durable;
    std::size_t synced = 0;  // bytes that are the same in both
  };
  using Names = std::map<std::string, std::shared_ptr<Content>>;
  class OpenFile final : public File {
   public:
    OpenFile(FakeDisk& disk, std::shared_ptr<Content> content)
        : disk_(disk), content_(std::move(content)) {}
    void write(std::uint64_t offset, std::span<const std::byte> data) override {
      disk_.count();
      if (content_->now.size() < offset + data.size()) content_->now.resize(offset + data.size());
      content_->synced = std::min(content_->synced, offset);
      std::ranges::copy(data, content_->now.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
      const ByteView all = content_->now;
      const std::size_t bytes = std::min(data.size(), all.size() - std::min(all.size(), offset));
      std::ranges::copy(all.subspan(all.size() == 0 ? 0 : offset, bytes), data.begin());
      return bytes;
    }
    void sync() override {
      disk_.count();
      if (std::exchange(disk_.is_failing_, false))
        throw Error(ErrorCode::kUnavailable, "a sync failed", false);
      const auto from = static_cast<std::ptrdiff_t>(content_->synced);
      content_->durable.resize(content_->now.size());
      std::copy(content_->now.begin() + from, content_->now.end(),
                content_->durable.begin() + from);
      content_->synced = content_->now.size();
    }
    std::uint64_t size() override { return content_->now.size(); }

   private:
    FakeDisk& disk_;
    std::shared_ptr<Content> content_;
  };

  static Names copy(const Names& names) {
    Names copied;
    for (const auto& [name, content] : names) copied[name] = std::make_shared<Content>(*content);
    return copied;
  }
  /// Some sectors of what was written are there, perhaps. Short sectors tear short records, too.
  static void tear(Content& content, Rng& rng) {
    constexpr std::size_t kSector = 16;
    if (rng.below(4) != 0) content.durable.resize(content.now.size());
    for (std::size_t at = 0; at < content.durable.size(); at += kSector) {
      const std::size_t end = std::min(at + kSector, content.durable.size());
      if (rng.below(2) != 0) continue;
      for (std::size_t i = at; i < end; ++i) content.durable[i] = content.now[i];
    }
  }
  void count() {
    if (left_ == 0) throw PowerFailure();
    --left_;
  }

  Names names_, durable_;
  std::uint64_t left_ = kForever;
  bool is_failing_ = false;
};

/// All that a state knows.
std::string all_of(const CoordinatorState& state) {
  Bytes bytes;
  ByteWriter out(bytes);
  state.view().put(out);
  for (const ListedServer& server : state.view().servers) {
    for (const auto& [segment, version] : state.versions(server.id)) {
      out.put(segment);
      out.put(version);
    }
    out.put(std::uint64_t{0xc0de});
    if (const LogCut* cut = state.cut(server.id); cut != nullptr) {
      out.put(std::uint64_t{0xc07});
      for (const SegmentCut& segment : *cut) {
        out.put(segment.segment);
        out.put(segment.valid);
      }
    }
  }
  for (const auto& [name, table] : state.tables()) {
    out.put(std::as_bytes(std::span(name)));
    out.put(table);
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Call>
std::optional<ErrorCode> error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

constexpr std::uint64_t kCells = 16;  // of the hashes of a table, in the model
constexpr std::uint64_t kCell = std::uint64_t{1} << 60;
constexpr std::uint64_t kLastHash = ~std::uint64_t{0};

HashRange cells(std::uint64_t table, std::uint64_t first, std::uint64_t last) {
  return {table, first * kCell, last * kCell + (kCell - 1)};
}

/// What the commands mean, in the simplest form: tables have an owner for each cell.
struct Model {
  struct Cell {
    ServerId owner;
    Position since;
  };
  std::map<ServerId, bool> is_up;
  std::map<NodeId, std::uint32_t> lives;
  std::map<ServerId, KnownVersions> versions;
  std::map<ServerId, LogCut> cuts;
  std::vector<std::array<Cell, kCells>> tables;  // [0] is table 1

  bool up(ServerId id) const { return is_up.contains(id) && is_up.at(id); }
  bool owns(ServerId id) const {
    return std::ranges::any_of(tables, [&](const auto& table) {
      return std::ranges::any_of(table, [&](const Cell& cell) { return cell.owner == id; });
    });
  }
  void expect_equal(const CoordinatorState& state) const {
    std::map<ServerId, bool> servers;
    for (const ListedServer& server : state.view().servers) {
      servers[server.id] = server.state == ServerState::kUp;
      const auto known = versions.find(server.id);
      EXPECT_EQ(state.versions(server.id),
                known == versions.end() ? KnownVersions() : known->second);
      const LogCut* cut = state.cut(server.id);
      ASSERT_EQ(cut != nullptr, cuts.contains(server.id));
      if (cut != nullptr) {
        EXPECT_EQ(*cut, cuts.at(server.id));
      }
    }
    EXPECT_EQ(servers, is_up);
    ASSERT_EQ(state.tables().size(), tables.size());
    for (std::uint64_t table = 1; table <= tables.size(); ++table) {
      for (std::uint64_t cell = 0; cell < kCells; ++cell) {
        for (const std::uint64_t hash : {cell * kCell, cell * kCell + (kCell - 1)}) {
          const Tablet* tablet = state.view().find(table, hash);
          ASSERT_NE(tablet, nullptr);
          EXPECT_EQ(tablet->owner, tables[table - 1][cell].owner);
          EXPECT_EQ(tablet->since, tables[table - 1][cell].since);
        }
      }
    }
  }
};

/// Random commands, for a state and a model.
class Commands {
 public:
  explicit Commands(std::uint64_t seed) : rng_(seed) {}

  /// Returns whether the view must have changed.
  bool step(CoordinatorState& state, Model& model) {
    switch (rng_.below(8)) {
      case 0: {
        const NodeId node = static_cast<NodeId>(rng_.below(4));
        const std::uint32_t newest = model.lives.contains(node) ? model.lives[node] : 0;
        const ServerId id{node, static_cast<std::uint32_t>(newest + rng_.below(3))};
        const bool is_new = !model.lives.contains(node) || id.life > newest;
        if (is_new) {
          for (auto& [other, is_up] : model.is_up) is_up = is_up && other.node != node;
          model.is_up[id] = true;
          model.lives[node] = id.life;
        }
        EXPECT_EQ(state.enlist(id), model.up(id));
        return is_new;
      }
      case 1: {
        const ServerId id = any(model);
        const bool was_up = model.up(id);
        if (was_up) model.is_up[id] = false;
        EXPECT_EQ(state.declare_dead(id), was_up);
        return was_up;
      }
      case 2: {
        const ServerId id = any(model);
        const std::uint64_t segment = rng_.below(3), version = rng_.below(4);
        EXPECT_EQ(state.raise_version(id, segment, version), model.up(id));
        if (model.up(id) && version > 0) {
          auto& known = model.versions[id][segment];
          known = std::max(known, version);
        }
        return false;
      }
      case 3:
        return create(state, model);
      case 4: {
        const ServerId id = any(model);
        const LogCut cut{{rng_.below(9), static_cast<std::uint32_t>(rng_.below(9))}, {9, 9}};
        if (!model.is_up.contains(id) || model.up(id)) {
          EXPECT_EQ(error_of([&] { state.record_cut(id, cut); }), ErrorCode::kInternal);
        } else {
          model.cuts.try_emplace(id, cut);
          EXPECT_EQ(state.record_cut(id, cut), model.cuts.at(id));
        }
        return false;
      }
      case 5: {
        const ServerId id = any(model);
        const auto forget = [&] { EXPECT_EQ(state.forget(id), model.is_up.contains(id)); };
        if (model.up(id) || model.owns(id)) {
          EXPECT_EQ(error_of(forget), ErrorCode::kInternal);
          return false;
        }
        forget();
        model.versions.erase(id);
        model.cuts.erase(id);
        return model.is_up.erase(id) != 0;
      }
      default:
        return move(state, model);
    }
  }

 private:
  ServerId any(const Model& model) {
    if (model.is_up.empty() || rng_.below(10) == 0) return {9, 9};
    return std::next(model.is_up.begin(),
                     static_cast<std::ptrdiff_t>(rng_.below(model.is_up.size())))
        ->first;
  }
  bool create(CoordinatorState& state, Model& model) {
    const std::string name = "table " + std::to_string(rng_.below(6));
    const auto known = state.tables().find(name);
    if (known != state.tables().end()) {
      EXPECT_EQ(state.create_table(name, {}), known->second);
      return false;
    }
    Servers owners;
    bool all_up = true;
    for (std::uint64_t left = std::uint64_t{1} << rng_.below(4); left != 0; --left) {
      owners.push_back(any(model));
      all_up = all_up && model.up(owners.back());
    }
    if (!all_up) {
      EXPECT_EQ(error_of([&] { state.create_table(name, owners); }), ErrorCode::kInvalidArgument);
      return false;
    }
    auto& table = model.tables.emplace_back();
    for (std::size_t cell = 0; cell < kCells; ++cell)
      table[cell] = {owners[cell * owners.size() / kCells], {}};
    EXPECT_EQ(state.create_table(name, owners), model.tables.size());
    return true;
  }
  bool move(CoordinatorState& state, Model& model) {
    const ServerId dead = any(model), owner = any(model);
    const Position since{rng_.below(5), static_cast<std::uint32_t>(rng_.below(5))};
    std::vector<HashRange> ranges;
    bool moves = false;
    const bool is_possible = !model.up(dead) && model.up(owner);
    for (std::uint64_t left = 1 + rng_.below(3); left != 0; --left) {
      const std::uint64_t table = 1 + rng_.below(model.tables.size() + 1);
      const std::uint64_t first = rng_.below(kCells);
      const std::uint64_t last = first + rng_.below(kCells - first);
      ranges.push_back(cells(table, first, last));
      if (!is_possible || table > model.tables.size()) continue;
      for (std::uint64_t cell = first; cell <= last; ++cell) {
        Model::Cell& moved_cell = model.tables[table - 1][cell];
        if (moved_cell.owner != dead) continue;
        moved_cell = {owner, since};
        moves = true;
      }
    }
    const auto move = [&] { EXPECT_EQ(state.move_tablets(dead, ranges, owner, since), moves); };
    EXPECT_EQ(error_of(move).has_value(), model.up(dead));
    return moves;
  }
  Rng rng_;
};

TEST(TailwindCoordinatorState, IsThatOfTheModelAfterEachRestart) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FakeDisk disk;
    Rng rng(seed);
    Model model;
    Commands commands(seed);
    std::uint64_t epoch = 0;
    std::set<std::uint64_t> clients;
    for (std::uint64_t step = 0; step < 300; ++step) {
      CoordinatorState state(disk, kFile);
      ASSERT_EQ(state.view().epoch, epoch);
      // Now and then several commands stand between two restarts.
      for (std::uint64_t left = step % 4 == 0 ? 10 : 1; left != 0; --left) {
        const bool has_changed = commands.step(state, model);
        EXPECT_EQ(state.view().epoch > epoch, has_changed);
        epoch = state.view().epoch;
        EXPECT_TRUE(clients.insert(state.new_client()).second);
      }
      model.expect_equal(state);
      disk.crash(FakeDisk::Crash::kLosesUnsynced, rng);
      model.expect_equal(CoordinatorState(disk, kFile));
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
    EXPECT_FALSE(clients.contains(0));
  }
}

/// A command of each kind, with each kind of record.
std::vector<std::function<void(CoordinatorState&)>> script() {
  return {
      [](CoordinatorState& state) {
        state.enlist({0, 0});
      },
      [](CoordinatorState& state) {
        state.enlist({1, 0});
      },
      [](CoordinatorState& state) {
        state.create_table("users", {{0, 0}, {1, 0}, {0, 0}});
      },
      [](CoordinatorState& state) {
        state.raise_version({0, 0}, 5, 1);
      },
      [](CoordinatorState& state) {
        state.raise_version({0, 0}, 5, 2);
      },
      [](CoordinatorState& state) { state.new_client(); },
      [](CoordinatorState& state) {
        state.declare_dead({0, 0});
      },
      [](CoordinatorState& state) {
        state.record_cut({0, 0}, {{5, 1000}, {6, 20}});
      },
      [](CoordinatorState& state) {
        state.move_tablets({0, 0}, {{1, 5, 90}}, {1, 0}, {3, 4});
      },
      [](CoordinatorState& state) {
        state.move_tablets({0, 0}, {{1, 0, kLastHash}}, {1, 0}, {3, 5});
      },
      [](CoordinatorState& state) {
        state.forget({0, 0});
      },
      [](CoordinatorState& state) {
        state.enlist({1, 4096});
      },
  };
}

constexpr std::array kCrashes{FakeDisk::Crash::kProcess, FakeDisk::Crash::kLosesUnsynced,
                              FakeDisk::Crash::kTearsUnsynced};

TEST(TailwindCoordinatorState, APowerFailureLeavesTheStateBeforeOrAfter) {
  Rng rng(1);
  FakeDisk disk;
  std::uint64_t kept = 0, lost = 0;
  for (const auto& command : script()) {
    std::string before, after;
    {
      FakeDisk copy(disk);
      CoordinatorState state(copy, kFile);
      before = all_of(state);
      command(state);
      after = all_of(state);
    }
    bool is_finished = false;
    for (std::uint64_t operations = 0; !is_finished; ++operations) {
      for (const auto crash : kCrashes) {
        for (int tries = 0; tries < (crash == FakeDisk::Crash::kTearsUnsynced ? 20 : 1); ++tries) {
          FakeDisk torn(disk);
          is_finished = false;
          {
            // The first operations are those of the load.
            torn.fail_after(operations);
            try {
              CoordinatorState state(torn, kFile);
              command(state);
              is_finished = true;
            } catch (const PowerFailure&) {
            }
          }
          torn.crash(crash, rng);
          const std::string found = all_of(CoordinatorState(torn, kFile));
          if (is_finished) {
            EXPECT_EQ(found, after);
          } else {
            EXPECT_TRUE(found == before || found == after);
            ++(found == before ? lost : kept);
          }
        }
      }
    }
    CoordinatorState state(disk, kFile);
    command(state);
  }
  EXPECT_GT(kept, 0U);
  EXPECT_GT(lost, 0U);
}

/// A file with a snapshot and the records of the script, and where each of them ends.
struct Written {
  Bytes bytes;
  std::vector<std::size_t> ends;
  std::vector<std::string> states;  // at each end
};

Written written() {
  Written result;
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  const auto note = [&] {
    result.bytes = disk.read(kFile);
    result.ends.push_back(result.bytes.size());
    result.states.push_back(all_of(state));
  };
  note();
  for (const auto& command : script()) {
    command(state);
    note();
  }
  return result;
}

/// The state in a file, or the text of the Error that refuses it.
std::string loaded(const Bytes& bytes) {
  FakeDisk disk;
  disk.write(kFile, bytes);
  try {
    return all_of(CoordinatorState(disk, kFile));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(disk.read(kFile), bytes) << "a refused file stays as it is";
    return error.what();
  }
}

std::string damaged_at(std::size_t offset) {
  return "tailwind: the coordinator's file 'coordinator' is damaged at offset " +
         std::to_string(offset) + " of ";
}

TEST(TailwindCoordinatorState, ATornRecordIsCutOff) {
  const Written file = written();
  for (std::size_t record = 1; record < file.ends.size(); ++record) {
    for (std::size_t end = file.ends[record - 1]; end <= file.ends[record]; ++end) {
      Bytes bytes = file.bytes;
      bytes.resize(end);
      const std::size_t last = end == file.ends[record] ? record : record - 1;
      EXPECT_EQ(loaded(bytes), file.states[last]) << "record " << record << " up to " << end;
      bytes.resize(file.ends[record]);
      const bool is_whole = std::equal(bytes.begin(), bytes.end(), file.bytes.begin());
      EXPECT_EQ(loaded(bytes), file.states[is_whole ? record : record - 1])
          << "record " << record << ", zeros from " << end << " on";
    }
  }
}

TEST(TailwindCoordinatorState, ATornSnapshotIsDamage) {
  const Written file = written();
  for (std::size_t end = 0; end < file.ends[0]; ++end) {
    Bytes bytes = file.bytes;
    bytes.resize(end);
    EXPECT_TRUE(loaded(bytes).starts_with(damaged_at(0))) << end;
  }
}

TEST(TailwindCoordinatorState, AFlippedBitIsFound) {
  const Written file = written();
  const std::size_t last = file.ends[file.ends.size() - 2];  // where the last record begins
  std::size_t record = 0;
  for (std::size_t bit = 0; bit < 8 * file.bytes.size(); ++bit) {
    if (bit / 8 == file.ends[record]) ++record;
    Bytes bytes = file.bytes;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const std::string found = loaded(bytes);
    if (bit / 8 < last) {
      EXPECT_TRUE(found.starts_with(damaged_at(record == 0 ? 0 : file.ends[record - 1])))
          << "bit " << bit << ": " << found;
    } else {
      EXPECT_EQ(found, file.states[file.states.size() - 2]) << "bit " << bit;
    }
  }
}

TEST(TailwindCoordinatorState, RecordsStandInTheirOrder) {
  const Written file = written();
  const auto part = [&](std::size_t from, std::size_t to) {
    return ByteView(file.bytes).subspan(file.ends[from], file.ends[to] - file.ends[from]);
  };
  const auto join = [&](std::initializer_list<ByteView> parts) {
    Bytes bytes(file.bytes.begin(), file.bytes.begin() + static_cast<std::ptrdiff_t>(file.ends[0]));
    for (const ByteView each : parts) bytes.insert(bytes.end(), each.begin(), each.end());
    return bytes;
  };
  EXPECT_EQ(loaded(join({part(0, 1), part(1, 2)})), file.states[2]);
  EXPECT_TRUE(loaded(join({part(1, 2)})).starts_with(damaged_at(file.ends[0]))) << "one is lost";
  EXPECT_TRUE(loaded(join({part(0, 1), part(0, 1)})).starts_with(damaged_at(file.ends[1])));
  EXPECT_TRUE(loaded(join({part(0, 1), ByteView(file.bytes).first(file.ends[0])}))
                  .starts_with(damaged_at(file.ends[1])))
      << "a snapshot amid the file";
}

// One damaged record may be a torn one, if it is the last.
TEST(TailwindCoordinatorState, DamageToTheLastTwoRecordsIsNoTear) {
  const Written file = written();
  const std::size_t last = file.ends.size() - 2;
  Bytes bytes = file.bytes;
  bytes[file.ends[last]] ^= std::byte{1};      // the header of the last one
  bytes[file.ends[last] - 1] ^= std::byte{1};  // the change before it
  EXPECT_TRUE(loaded(bytes).starts_with(damaged_at(file.ends[last - 1])));
}

TEST(TailwindCoordinatorState, AFileThatACrashLeftHasNoEffect) {
  const Written file = written();
  FakeDisk disk;
  disk.write(kFile, file.bytes);
  disk.write(std::string(kFile) + ".new", Bytes(5000, std::byte{0x55}));
  EXPECT_EQ(all_of(CoordinatorState(disk, kFile)), file.states.back());
  EXPECT_LT(disk.read(kFile).size(), 1000U);
  EXPECT_EQ(all_of(CoordinatorState(disk, kFile)), file.states.back());
}

TEST(TailwindCoordinatorState, ALargeFileIsWrittenAnew) {
  FakeDisk disk;
  std::string expected;
  std::size_t largest = 0, anew = 0;
  {
    CoordinatorState state(disk, kFile);
    state.enlist({0, 0});
    std::size_t before = 0;
    for (std::uint64_t version = 1; version <= 50'000; ++version) {
      state.raise_version({0, 0}, version % 10, version);
      const std::size_t size = disk.open(kFile)->size();
      anew += size < before ? 1 : 0;
      largest = std::max(largest, before = size);
    }
    expected = all_of(state);
  }
  EXPECT_EQ(anew, 2U);
  EXPECT_GT(largest, std::size_t{1} << 20);
  EXPECT_LT(largest, (std::size_t{1} << 20) + 100);
  EXPECT_EQ(all_of(CoordinatorState(disk, kFile)), expected);
  EXPECT_LT(disk.read(kFile).size(), 1000U) << "a load writes it anew, too";
}

TEST(TailwindCoordinatorState, AFailureOfTheDiskEndsTheCommands) {
  FakeDisk disk;
  {
    CoordinatorState state(disk, kFile);
    state.enlist({0, 0});
    disk.fail_next_file_sync();
    EXPECT_EQ(error_of([&] { state.enlist({1, 0}); }), ErrorCode::kUnavailable);
    EXPECT_EQ(error_of([&] { state.enlist({2, 0}); }), ErrorCode::kUnavailable);
    EXPECT_FALSE(state.view().is_up({1, 0}));
  }
  CoordinatorState state(disk, kFile);
  EXPECT_TRUE(state.view().is_up({0, 0}));
  EXPECT_FALSE(state.view().is_up({2, 0}));
  EXPECT_TRUE(state.enlist({3, 0}));
}

TEST(TailwindCoordinatorState, TabletsSplitTheHashesEvenly) {
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  state.enlist({0, 0});
  state.enlist({1, 0});
  const std::uint64_t third = kLastHash / 3;  // 2^64 - 1 is a multiple of 3
  EXPECT_EQ(state.create_table("three", {{0, 0}, {1, 0}, {0, 0}}), 1U);
  EXPECT_EQ(state.view().tablets, (std::vector<Tablet>{{{1, 0, third - 1}, {0, 0}, {}},
                                                       {{1, third, 2 * third - 1}, {1, 0}, {}},
                                                       {{1, 2 * third, kLastHash}, {0, 0}, {}}}));
  EXPECT_EQ(state.create_table("one", {{1, 0}}), 2U);
  EXPECT_EQ(state.view().tablets.back(), (Tablet{{2, 0, kLastHash}, {1, 0}, {}}));
  EXPECT_EQ(state.create_table("many", Servers(CoordinatorState::kMostTablets, {0, 0})), 3U);
  EXPECT_EQ(state.view().tablets.size(), 4 + CoordinatorState::kMostTablets);
}

TEST(TailwindCoordinatorState, TablesHaveLimits) {
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  state.enlist({0, 0});
  const auto create = [&](std::size_t name_bytes, std::size_t tablets) {
    return error_of([&] {
      state.create_table(std::string(name_bytes, 'n'), Servers(tablets, {0, 0}));
    });
  };
  EXPECT_EQ(create(0, 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(CoordinatorState::kMostTableName + 1, 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(1, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(1, CoordinatorState::kMostTablets + 1), ErrorCode::kInvalidArgument);
  EXPECT_EQ(create(CoordinatorState::kMostTableName, 1), std::nullopt);
}

TEST(TailwindCoordinatorState, AForgottenLifeStaysRefused) {
  FakeDisk disk;
  {
    CoordinatorState state(disk, kFile);
    EXPECT_TRUE(state.enlist({0, 7}));
    EXPECT_TRUE(state.enlist({0, 7})) << "the request came again";
    EXPECT_EQ(state.view().epoch, 1U);
    state.declare_dead({0, 7});
    EXPECT_FALSE(state.enlist({0, 7}));
    EXPECT_TRUE(state.forget({0, 7}));
  }
  CoordinatorState state(disk, kFile);
  EXPECT_TRUE(state.view().servers.empty());
  EXPECT_FALSE(state.enlist({0, 6}));
  EXPECT_FALSE(state.enlist({0, 7}));
  EXPECT_TRUE(state.enlist({0, 8}));
}

TEST(TailwindCoordinatorState, AnEmptyRangeMovesNothing) {
  FakeDisk disk;
  CoordinatorState state(disk, kFile);
  state.enlist({0, 0});
  state.enlist({1, 0});
  state.create_table("t", {{0, 0}});
  state.declare_dead({0, 0});
  EXPECT_FALSE(state.move_tablets({0, 0}, {{1, 10, 5}}, {1, 0}, {}));
  EXPECT_TRUE(state.move_tablets({0, 0}, {{1, 10, 5}, {1, 20, kLastHash}}, {1, 0}, {}));
  EXPECT_EQ(state.view().tablets,
            (std::vector<Tablet>{{{1, 0, 19}, {0, 0}, {}}, {{1, 20, kLastHash}, {1, 0}, {}}}));
}

// ---- hostile files ----

std::string text_of_file(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes bytes_of_file(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input));
  return {bytes.begin(), bytes.end()};
}

/// What is loaded is loaded again.
void load_any_file(const Bytes& bytes) {
  FakeDisk disk;
  disk.write(kFile, bytes);
  std::string first;
  const auto refused = error_of([&] { first = all_of(CoordinatorState(disk, kFile)); });
  PYRDMA_MUST(!refused || *refused == ErrorCode::kUnavailable);
  PYRDMA_MUST(refused || all_of(CoordinatorState(disk, kFile)) == first);
}

TEST(TailwindCoordinatorState, AnyFileIsLoadedOrRefused) {
  hostile::Mutator mutator({text_of_file(written().bytes)}, 1);
  for (int input = 0; input < 5000 && !HasFatalFailure(); ++input)
    load_any_file(bytes_of_file(mutator.next()));
}

constexpr std::size_t kHeader = 24;  // bytes of a record before its change

Bytes with_checksums(std::uint64_t number, std::string_view change) {
  const ByteView contents = std::as_bytes(std::span(change));
  Bytes bytes;
  ByteWriter out(bytes);
  out.put(std::uint32_t{0x43575450});
  out.put(static_cast<std::uint32_t>(contents.size()));
  out.put(number);
  out.put(crc32c(contents));
  out.put(crc32c(bytes));
  out.put(contents);
  return bytes;
}

TEST(TailwindCoordinatorState, OnlyTheFirstRecordIsASnapshot) {
  const Written file = written();
  const auto change = [&](std::size_t from, std::size_t to) {
    return text_of_file(file.bytes).substr(from + kHeader, to - from - kHeader);
  };
  const std::string snapshot = change(0, file.ends[0]), enlist = change(file.ends[0], file.ends[1]);
  const auto behind_snapshot = [&](std::string_view other) {
    Bytes bytes = with_checksums(0, snapshot);
    ByteWriter(bytes).put(ByteView(with_checksums(1, other)));
    return loaded(bytes);
  };
  const std::size_t end = kHeader + snapshot.size();
  EXPECT_EQ(behind_snapshot(enlist), file.states[1]);
  EXPECT_TRUE(behind_snapshot(snapshot).starts_with(damaged_at(end)));
  EXPECT_TRUE(behind_snapshot("").starts_with(damaged_at(end)));
  EXPECT_TRUE(loaded(with_checksums(0, enlist)).starts_with(damaged_at(0)));
  EXPECT_TRUE(loaded(with_checksums(0, "")).starts_with(damaged_at(0)));
}

// Changes that lie, in records whose checksums are right.
TEST(TailwindCoordinatorState, ChangesThatLieAreLoadedOrRefused) {
  const Written file = written();
  FakeDisk disk;
  disk.write(kFile, file.bytes);
  CoordinatorState(disk, kFile);
  const Bytes snapshot = disk.read(kFile);
  std::vector<std::string> changes{text_of_file(snapshot).substr(kHeader)};
  for (std::size_t i = 0; i + 1 < file.ends.size(); ++i) {
    changes.push_back(
        text_of_file(file.bytes)
            .substr(file.ends[i] + kHeader, file.ends[i + 1] - file.ends[i] - kHeader));
  }
  Rng rng(1);
  hostile::Mutator mutator(changes, 1);
  for (int input = 0; input < 10'000 && !HasFatalFailure(); ++input) {
    const std::string change = mutator.next();
    if (input % 2 == 0) {
      load_any_file(with_checksums(0, change));
      continue;
    }
    // Behind some of the true records.
    const std::size_t true_ones = rng.below(file.ends.size());
    Bytes bytes = file.bytes;
    bytes.resize(file.ends[true_ones]);
    ByteWriter(bytes).put(ByteView(with_checksums(true_ones, change)));
    load_any_file(bytes);
  }
}

TEST(TailwindCoordinatorState, WorksOnTheDiskOfASimulatedNode) {
  runtime::run_world("sim", 2, [](Env& env, const runtime::Kill&) {
    if (env.node() != 0) return;
    std::string expected;
    {
      CoordinatorState state(env.storage(), kFile);
      for (const auto& command : script()) command(state);
      expected = all_of(state);
    }
    CoordinatorState state(env.storage(), kFile);
    EXPECT_EQ(all_of(state), expected);
    EXPECT_FALSE(env.storage().exists(std::string(kFile) + ".new"));
  });
}

}  // namespace
}  // namespace pyrdma::tailwind
