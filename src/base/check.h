// base/check.h -- SKIFF_CHECK is for bugs only: it prints the condition, the values and the place,
// then aborts. A caller's mistake is a Result, a broken file at load time is a LoadError.
#pragma once
#include <fmt/format.h>

#include <string>

namespace skiff {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace skiff

// SKIFF_CHECK(cond) or SKIFF_CHECK(cond, "format {}", value).
#define SKIFF_CHECK(condition, ...)                                                       \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::skiff::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (0)

#define SKIFF_CHECK_EQ(a, b) SKIFF_CHECK((a) == (b), "{} != {}", (a), (b))
