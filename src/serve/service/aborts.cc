#include "serve/service/aborts.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace skiff::service {

std::string_view bare_id(std::string_view id) {
  for (const std::string_view prefix : {"chatcmpl-", "cmpl-", "resp_", "msg_"})
    if (id.starts_with(prefix)) return id.substr(prefix.size());
  return id;
}

AbortNames::AbortNames(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string bare(bare_id(name));
    exact_.insert(bare);
    const size_t mark = bare.rfind('_');
    if (mark == std::string::npos) continue;
    int index = 0;
    const char* end = bare.data() + bare.size();
    const auto read = std::from_chars(bare.data() + mark + 1, end, index);
    if (read.ec == std::errc() && read.ptr == end && index >= 0)
      children_.emplace(bare.substr(0, mark), Child{bare, index});
  }
}

bool AbortNames::has(std::string_view id) {
  const std::string bare(bare_id(id));
  if (!exact_.contains(bare)) return false;
  found_.insert(bare);
  return true;
}

bool AbortNames::has_child(std::string_view id, int n) const {
  const auto [begin, end] = children_.equal_range(std::string(bare_id(id)));
  return std::any_of(begin, end, [&](const auto& entry) {
    return entry.second.index < n && !found_.contains(entry.second.whole);
  });
}

std::future<std::vector<Aborted>> AbortQueue::add(AbortWish wish) {
  Job job{std::move(wish), {}};
  auto done = job.done.get_future();
  const std::lock_guard lock(mutex_);
  if (closed_)
    job.done.set_value({});
  else
    jobs_.push_back(std::move(job));
  return done;
}

std::vector<AbortQueue::Job> AbortQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(jobs_, {});
}

void AbortQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (Job& job : std::exchange(jobs_, {})) job.done.set_value({});
}

}  // namespace skiff::service
