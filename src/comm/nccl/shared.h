// comm/nccl/shared.h -- what the ranks of a group in this process have in common.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/meeting.h"
#include "comm/nccl/group.h"
#include "comm/nccl/link.h"

namespace skiff::nccl {

struct Group::Shared {
  Shared(const Settings& settings, const Library& nccl);
  ~Shared();

  // Begins to look for what NCCL notices by itself, and for the end.
  void watch();
  Link& add(std::unique_ptr<Link> link);
  void end(const std::string& reason);
  void throw_if_ended();

  const Settings settings;
  const Library nccl;
  comm::Meeting meeting;  // the ranks here meet in it
  std::atomic<bool> in_service = false, ended = false;
  // Ranks may wait for others in NCCL or on the device; not while they load weights, which takes
  // its time whether the group has ended or not.
  std::atomic<bool> may_wait = false;

 private:
  bool wait_for_end(std::chrono::milliseconds time);
  std::vector<Link*> links();
  void look();
  void let_go();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Link>> links_;  // one for each rank here; guarded by mutex_
  std::string why_;                           // guarded by mutex_
  bool destroyed_ = false;                    // guarded by mutex_
  std::thread watcher_;
};

}  // namespace skiff::nccl
