// A node's storage whose syncs of files fail when the scenario says so. What a failed sync was to
// make durable is seen by all further reads, also of another process, and goes with the power.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"
#include "env/env_decorator.h"
#include "env/storage.h"

namespace pyrdma::fuzz {

class FailingSyncs final : public Storage {
 public:
  /// Asked before each sync of a file, with the bytes that were written to it since the last one.
  using Fails = std::function<bool(std::uint64_t unsynced)>;

  /// `inner` outlives the storage and its files, and so does the storage its files.
  FailingSyncs(Storage& inner, Fails fails) : inner_(inner), fails_(std::move(fails)) {}

  std::unique_ptr<pyrdma::File> open(std::string_view name) override {
    return std::make_unique<File>(inner_.open(name), fails_);
  }
  bool exists(std::string_view name) override { return inner_.exists(name); }
  void remove(std::string_view name) override { inner_.remove(name); }
  void rename(std::string_view from, std::string_view to) override { inner_.rename(from, to); }
  void sync() override { inner_.sync(); }

 private:
  class File final : public pyrdma::File {
   public:
    File(std::unique_ptr<pyrdma::File> inner, const Fails& fails)
        : inner_(std::move(inner)), fails_(fails) {}
    void write(std::uint64_t offset, std::span<const std::byte> data) override {
      inner_->write(offset, data);
      unsynced_ += data.size();
    }
    std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
      return inner_->read(offset, data);
    }
    void sync() override {
      if (fails_(unsynced_))
        throw Error(ErrorCode::kUnavailable, "a sync failed, as the scenario says", false);
      inner_->sync();
      unsynced_ = 0;
    }
    std::uint64_t size() override { return inner_->size(); }

   private:
    std::unique_ptr<pyrdma::File> inner_;
    const Fails& fails_;
    std::uint64_t unsynced_ = 0;
  };

  Storage& inner_;
  const Fails fails_;
};

/// A node with such a storage.
class EnvWithFailingSyncs : public EnvDecorator {
 public:
  EnvWithFailingSyncs(Env& inner, FailingSyncs::Fails fails)
      : EnvDecorator(inner), storage_(inner.storage(), std::move(fails)) {}
  Storage& storage() override { return storage_; }

 private:
  FailingSyncs storage_;
};

}  // namespace pyrdma::fuzz
