#include "engine/side_by_side.h"

#include <exception>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace skiff::engine {
namespace {

std::string reason(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown";
  }
}

bool only_followed(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const comm::GroupEnded&) {
    return true;
  } catch (...) {
    return false;
  }
}

void throw_first(const std::vector<std::exception_ptr>& thrown) {
  for (const bool followed : {false, true})
    for (const std::exception_ptr& one : thrown)
      if (one && only_followed(one) == followed) std::rethrow_exception(one);
}

}  // namespace

void side_by_side(size_t count, const std::function<void(size_t)>& work,
                  const std::function<void(size_t, const std::string& why)>& failed) {
  std::vector<std::exception_ptr> thrown(count);
  const auto attempt = [&](size_t i) {
    try {
      work(i);
    } catch (...) {
      thrown[i] = std::current_exception();
      failed(i, reason(thrown[i]));
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < count; ++i) others.emplace_back(attempt, i);
  attempt(0);
  for (std::thread& thread : others) thread.join();
  throw_first(thrown);
}

}  // namespace skiff::engine
