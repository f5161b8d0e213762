// text/stop_finder.h -- watches a text go by for any of several strings.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skiff {

// Knuth, Morris and Pratt 1977, one automaton per string: O(strings) per byte, whatever their
// lengths. Of all strings the one that is complete first is found; of several that are complete
// with the same byte, the longest. Not thread-safe.
class StopFinder {
 public:
  explicit StopFinder(const std::vector<std::string>& stops);  // empty strings are ignored

  // Takes one byte; true once a stop is complete, after which no more may be pushed.
  bool push(char byte);
  // How many of the last bytes may be the beginning of a stop.
  size_t pending() const { return pending_; }
  const std::string& found() const { return stops_[*found_].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [i]: the longest proper border of text's first i + 1 bytes
    size_t matched = 0;
  };
  std::vector<Stop> stops_;
  size_t pending_ = 0;
  std::optional<size_t> found_;
};

}  // namespace skiff
