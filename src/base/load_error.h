// base/load_error.h -- the exception for trouble while starting up (a file, memory, a device); main
// alone catches it. Nothing throws once the first step has run.
#pragma once
#include <fmt/format.h>

#include <stdexcept>

namespace skiff {

// what() is one line that names the file, field or flag, its value, and what to do about it.
struct LoadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void fail_load(fmt::format_string<Args...> format, Args&&... args) {
  throw LoadError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace skiff
