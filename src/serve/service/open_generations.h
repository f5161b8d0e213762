// serve/service/open_generations.h -- the generations under way, whatever protocol they came by.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

namespace skiff::service {

// Why the server waits for a generation no longer.
enum class CutOff { kStopping, kEngineFailed };

// A generation under way, as the server sees it.
class OpenGeneration {
 public:
  virtual ~OpenGeneration() = default;
  // Called every second or so: a chance to write something that shows the connection is alive.
  virtual void tick() = 0;
  // The server goes down and waits no longer: cancels the generation and ends its reply with an
  // error. Does nothing if the reply is complete.
  virtual void cut_off(CutOff why) = 0;
};

// Owns none of them. Thread-safe.
class OpenGenerations {
 public:
  void add(const std::shared_ptr<OpenGeneration>& generation) {
    std::lock_guard lock(mutex_);
    std::erase_if(open_, [](const auto& weak) { return weak.expired(); });
    open_.push_back(generation);
  }
  std::vector<std::shared_ptr<OpenGeneration>> all() const {
    std::vector<std::shared_ptr<OpenGeneration>> alive;
    std::lock_guard lock(mutex_);
    for (const auto& weak : open_)
      if (auto generation = weak.lock()) alive.push_back(std::move(generation));
    return alive;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<OpenGeneration>> open_;  // guarded by mutex_
};

}  // namespace skiff::service
