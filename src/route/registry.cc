#include "route/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/seconds.h"

namespace skiff::route {

Status Registry::check(const Instance& instance) const {
  if (settings_.splitwise == (instance.role != Role::kMixed)) return ok();
  return Error{Code::kInvalid,
               settings_.splitwise
                   ? "role is \"mixed\", but this router was started with --splitwise: it takes "
                     "\"prefill\" and \"decode\""
                   : fmt::format("role is \"{}\", but this router was started without --splitwise: "
                                 "it takes \"mixed\"",
                                 name(instance.role)),
               "role"};
}

std::shared_ptr<Backend> Registry::find(const std::string& url) const {
  for (const auto& backend : backends_)
    if (backend->url == url) return backend;
  return nullptr;
}

Result<std::shared_ptr<Backend>> Registry::put(const Instance& instance, bool fixed,
                                               Clock::time_point now) {
  if (auto known = find(instance.url())) {
    known->instance = instance;
    known->seen = now;
    return known;
  }
  if (backends_.size() >= settings_.max_backends)
    return Error{Code::kExhausted, fmt::format("there are {} instances already", backends_.size())};
  backends_.push_back(std::make_shared<Backend>(instance, fixed, settings_.max_blocks, now));
  return backends_.back();
}

void Registry::forget_absent(Clock::time_point now) {
  std::erase_if(backends_, [&](const std::shared_ptr<Backend>& backend) {
    return !backend->fixed && !backend->health.up() &&
           seconds(now - backend->seen) > settings_.forget_seconds;
  });
}

std::vector<std::shared_ptr<Backend>> Registry::usable(Role role) const {
  std::vector<std::shared_ptr<Backend>> found;
  for (const auto& backend : backends_)
    if (backend->instance.role == role && backend->usable()) found.push_back(backend);
  return found;
}

size_t Registry::count(Role role) const {
  return static_cast<size_t>(
      std::count_if(backends_.begin(), backends_.end(),
                    [&](const auto& backend) { return backend->instance.role == role; }));
}

}  // namespace skiff::route
