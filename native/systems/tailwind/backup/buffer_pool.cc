#include "systems/tailwind/backup/buffer_pool.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"

namespace pyrdma::tailwind {

namespace {

constexpr std::uint64_t kTableMagic = 0x32656c6261746c74;  // "tltable2"
constexpr std::uint32_t kLabelMagic = 0x6c746c74;          // "tltl"
constexpr std::uint32_t kMostBuffers = 1U << 20;           // of a table that is taken for one

enum class BufferUse : std::uint8_t { kFree, kOpen, kClosed };

// The structures below lie in memory that a battery saves. None has padding.
struct TableHeader {
  std::uint64_t magic = kTableMagic;
  std::uint64_t pool = 0;
  std::uint32_t buffers = 0, bytes = 0;
  std::uint32_t zero = 0;
  std::uint32_t crc = 0;  // of all before
};
struct Descriptor {
  std::uint64_t sequence = 0;  // of the stores for one buffer
  std::uint64_t log = 0, segment = 0, attempt = 0, version = 0;
  std::uint64_t serial = 0;  // of the buffer
  std::uint32_t end = 0, checksum = 0, entries = 0;
  BufferUse use = BufferUse::kFree;
  std::uint8_t is_copy = 0, is_written_by_cpu = 0, zero = 0;
  std::uint32_t written = 0;
  std::uint32_t crc = 0;  // of all before
};
struct Label {
  std::uint64_t pool = 0;
  std::uint64_t serial = 0;
  std::uint32_t magic = kLabelMagic;
  std::uint32_t buffer = 0;
  std::uint32_t zero = 0;
  std::uint32_t crc = 0;  // of all before
};
static_assert(sizeof(TableHeader) == 32 && sizeof(Descriptor) == 72);
static_assert(sizeof(Label) == BufferPool::kLabelBytes);

template <class T>
std::uint32_t crc_of(const T& value) {
  return crc32c(std::as_bytes(std::span(&value, 1)).first(offsetof(T, crc)));
}
template <class T>
void store_with_crc(std::byte* at, T value) {
  value.crc = crc_of(value);
  std::memcpy(at, &value, sizeof value);
}
/// The value at `offset` of the file, or none if it is short or its checksum is wrong.
template <class T>
std::optional<T> load_with_crc(File& file, std::uint64_t offset) {
  T value;
  const auto bytes = std::as_writable_bytes(std::span(&value, 1));
  if (file.read(offset, bytes) != sizeof value || value.crc != crc_of(value)) return std::nullopt;
  return value;
}

/// The file that the battery writes.
std::string saved_name(std::size_t number) { return "memory-" + std::to_string(number); }
std::string kept_name(std::size_t generation, std::size_t number) {
  return "saved-" + std::to_string(generation) + "-" + std::to_string(number);
}

/// Where the descriptor of a buffer is stored: a store leaves the last one as it is.
std::uint64_t table_place(std::uint32_t buffer, std::uint64_t sequence) {
  return sizeof(TableHeader) + (2 * std::uint64_t{buffer} + sequence % 2) * sizeof(Descriptor);
}

/// The newest descriptor of a buffer that is whole, or none.
std::optional<Descriptor> load_descriptor(File& file, const std::string& name, std::uint32_t buffer,
                                          std::vector<std::string>& problems) {
  std::optional<Descriptor> newest;
  for (std::uint64_t slot = 0; slot < 2; ++slot) {
    const std::uint64_t place = table_place(buffer, slot);
    const auto found = load_with_crc<Descriptor>(file, place);
    if (found && (!newest || found->sequence > newest->sequence)) newest = found;
    std::array<std::byte, sizeof(Descriptor)> bytes{};
    if (!found && !(file.read(place, bytes) == bytes.size() && is_zeros(bytes)))
      problems.push_back("file '" + name + "': an entry of buffer " + std::to_string(buffer) +
                         " is damaged; the one before it is used, if it is whole");
  }
  return newest;
}

/// Names a buffer of a pool in one of its lives.
struct BufferLife {
  std::uint64_t pool = 0, serial = 0;
  std::uint32_t buffer = 0;
  auto operator<=>(const BufferLife&) const = default;
};

void take_saved_table(File& file, const std::string& name, const TableHeader& header,
                      std::map<BufferLife, BufferContents>& used,
                      std::vector<std::string>& problems) {
  for (std::uint32_t buffer = 0; buffer < header.buffers; ++buffer) {
    const auto found = load_descriptor(file, name, buffer, problems);
    if (!found || found->use == BufferUse::kFree) continue;
    BufferContents contents;
    contents.log = found->log;
    contents.segment = found->segment;
    contents.attempt = found->attempt;
    contents.version = found->version;
    contents.is_copy = found->is_copy != 0;
    contents.is_written_by_cpu = found->is_written_by_cpu != 0;
    contents.written = found->written;
    contents.is_closed = found->use == BufferUse::kClosed;
    contents.end = found->end;
    contents.checksum = found->checksum;
    contents.entries = found->entries;
    if (contents.written > header.bytes || contents.end > header.bytes) {
      problems.push_back("file '" + name + "': the entry of buffer " + std::to_string(buffer) +
                         " has impossible lengths; its replica is not used");
      continue;
    }
    used.emplace(BufferLife{header.pool, found->serial, buffer}, contents);
  }
}

}  // namespace

BufferPool::BufferPool(Env& env, fabric::ProtectionDomain& domain, std::uint32_t count,
                       std::uint32_t bytes, Bugs bugs)
    : env_(env),
      domain_(domain),
      bytes_(bytes),
      bugs_(bugs),
      footprint_(env, nullptr, std::uint64_t{count} * bytes),
      regions_(count),
      serials_(count),
      stores_(count) {
  table_ = env.device().allocate(domain, table_bytes(count), fabric::kLocalWrite);
  // Keys are unique among the regions that exist.
  id_ = std::uint64_t{table_->rkey()} << 32 | table_->lkey();
  for (std::uint32_t buffer = 0; buffer < count; ++buffer) clear(buffer);
  TableHeader header;
  header.pool = id_;
  header.buffers = count;
  header.bytes = bytes;
  store_with_crc(table_->data(), header);
  for (std::uint32_t buffer = count; buffer-- > 0;) {
    make(buffer);
    free_.push_back(buffer);
  }
}

BufferPool::~BufferPool() = default;

std::size_t BufferPool::table_bytes(std::uint32_t count) { return table_place(count, 0); }

template <class Stored>
void BufferPool::store(std::uint32_t buffer, Stored descriptor) {
  descriptor.sequence = ++stores_[buffer];
  store_with_crc(table_->data() + table_place(buffer, descriptor.sequence), descriptor);
}

void BufferPool::make(std::uint32_t buffer) {
  using fabric::kLocalWrite, fabric::kRemoteRead, fabric::kRemoteWrite;
  regions_[buffer] = env_.device().allocate(domain_, bytes_ + kLabelBytes,
                                            kLocalWrite | kRemoteWrite | kRemoteRead);
  Label label;
  label.pool = id_;
  label.serial = ++serials_[buffer];
  label.buffer = buffer;
  store_with_crc(regions_[buffer]->data() + bytes_, label);
}

std::optional<std::uint32_t> BufferPool::take() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void BufferPool::describe(std::uint32_t buffer, const BufferContents& contents) {
  Descriptor descriptor;
  descriptor.log = contents.log;
  descriptor.segment = contents.segment;
  descriptor.attempt = contents.attempt;
  descriptor.version = contents.version;
  descriptor.serial = serials_[buffer];
  descriptor.end = contents.end;
  descriptor.checksum = contents.checksum;
  descriptor.entries = contents.entries;
  descriptor.use = contents.is_closed ? BufferUse::kClosed : BufferUse::kOpen;
  descriptor.is_copy = contents.is_copy;
  descriptor.is_written_by_cpu = contents.is_written_by_cpu;
  descriptor.written = contents.written;
  store(buffer, descriptor);
}

void BufferPool::clear(std::uint32_t buffer) { store(buffer, Descriptor{}); }

void BufferPool::renew(std::uint32_t buffer) {
  if (!bugs_.renews_keys()) {
    std::memset(regions_[buffer]->data(), 0, bytes_);
    return;
  }
  const auto old = bugs_.zeroes_buffers() ? nullptr : regions_[buffer];
  regions_[buffer].reset();
  make(buffer);
  if (old != nullptr) std::memcpy(regions_[buffer]->data(), old->data(), bytes_);
}

fabric::RemoteRegion BufferPool::remote(std::uint32_t buffer) const {
  fabric::RemoteRegion remote = regions_[buffer]->remote();
  remote.length = bytes_;
  return remote;
}

void keep_saved_memory(Storage& storage) {
  std::size_t number = 0, generation = 0;
  while (storage.exists(saved_name(number))) ++number;
  if (number == 0) return;
  while (storage.exists(kept_name(generation, 0))) ++generation;
  // The first one last: after a crash amid this the rest goes to the same generation. A power
  // failure leaves any choice of the changes that were not synced, also those of an earlier
  // process. So each change is durable before the next one.
  while (number-- > 0) {
    storage.sync();
    storage.rename(saved_name(number), kept_name(generation, number));
  }
  storage.sync();
}

namespace {

SavedMemory find_kept_buffers(Storage& storage, std::size_t generation, std::uint32_t bytes,
                              std::vector<std::string>& problems) {
  SavedMemory saved;
  std::map<BufferLife, BufferContents> used;
  std::map<BufferLife, std::string> files;
  for (std::size_t number = 0; storage.exists(kept_name(generation, number)); ++number) {
    const std::string name = kept_name(generation, number);
    try {
      const auto file = storage.open(name);
      const auto header = load_with_crc<TableHeader>(*file, 0);
      if (header && header->magic == kTableMagic && header->buffers <= kMostBuffers) {
        std::map<BufferLife, BufferContents> of_table;
        take_saved_table(*file, name, *header, of_table, problems);
        if (header->bytes == bytes) {
          used.merge(of_table);
        } else if (!of_table.empty()) {
          saved.has_all = false;
          problems.push_back("file '" + name + "': saved buffers have " +
                             std::to_string(header->bytes) + " B, and are not used; start with " +
                             "segment_bytes=" + std::to_string(header->bytes));
        }
      }
      if (file->size() != bytes + BufferPool::kLabelBytes) continue;
      const auto label = load_with_crc<Label>(*file, bytes);
      if (label && label->magic == kLabelMagic)
        files.emplace(BufferLife{label->pool, label->serial, label->buffer}, name);
    } catch (const Error& error) {
      saved.has_all = false;
      problems.push_back("file '" + name + "' of saved memory: " + error.what());
    }
  }
  for (const auto& [life, contents] : used) {
    const auto file = files.find(life);
    if (file != files.end())
      saved.buffers.push_back({contents, file->second});
    else
      problems.push_back("saved memory: the buffer of segment " + std::to_string(contents.segment) +
                         " of log " + std::to_string(contents.log) + " is missing or damaged");
  }
  return saved;
}

}  // namespace

std::vector<SavedMemory> find_saved_buffers(Storage& storage, std::uint32_t bytes,
                                            std::vector<std::string>& problems) {
  std::vector<SavedMemory> saved;
  while (storage.exists(kept_name(saved.size(), 0)))
    saved.push_back(find_kept_buffers(storage, saved.size(), bytes, problems));
  return saved;
}

void remove_saved_memory(Storage& storage, std::size_t failure) {
  std::size_t number = 0;
  while (storage.exists(kept_name(failure, number))) ++number;
  // The last one first: after a crash amid this the rest is found again. See keep_saved_memory().
  while (number-- > 0) {
    storage.sync();
    storage.remove(kept_name(failure, number));
  }
  storage.sync();
}

}  // namespace pyrdma::tailwind
