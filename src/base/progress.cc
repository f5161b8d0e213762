#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace skiff {

Progress make_progress_bar(std::string label) {
  if (label.empty()) return [](uint64_t, uint64_t) {};
  const bool terminal = isatty(STDERR_FILENO) != 0;
  return [label = std::move(label), terminal, last = -1](uint64_t done, uint64_t total) mutable {
    const int percent = total == 0 ? 100 : static_cast<int>(done * 100 / total);
    const int shown = terminal ? percent : percent / 10 * 10;
    if (shown == last) return;
    last = shown;
    if (!terminal) {
      fmt::print(stderr, "{} {}%\n", label, shown);
      return;
    }
    const std::string bar(static_cast<size_t>(percent) * 30 / 100, '#');
    fmt::print(stderr, "\r{} [{:<30}] {:3}%{}", label, bar, percent, percent == 100 ? "\n" : "");
    std::fflush(stderr);
  };
}

}  // namespace skiff
