// text/stop_finder.h -- watches a text go by for any of several strings.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skiff {

// The strings that end a reply, ready to be looked for. Immutable; copies share one state, so that
// thousands of replies to one request need it once.
class StopStrings {
 public:
  StopStrings() = default;
  // Empty strings are ignored, and those that are not UTF-8, which no text of a reply can hold.
  StopStrings(const std::vector<std::string>& texts);
  StopStrings(std::initializer_list<std::string> texts)
      : StopStrings(std::vector<std::string>(texts)) {}

 private:
  friend class StopFinder;
  struct Stop {
    std::string text;
    std::vector<uint32_t> border;  // [i]: the longest proper border of text's first i + 1 bytes
  };
  std::shared_ptr<const std::vector<Stop>> stops_;  // null: none
};

// Knuth, Morris and Pratt 1977, one automaton per string: O(strings) per byte, whatever their
// lengths. Of all strings the one that is complete first is found; of several that are complete
// with the same byte, the longest. Not thread-safe.
class StopFinder {
 public:
  explicit StopFinder(StopStrings stops);

  // Takes one byte; true once a stop is complete, after which no more may be pushed.
  bool push(char byte);
  // How many of the last bytes may be the beginning of a stop.
  size_t pending() const { return pending_; }
  const std::string& found() const { return (*stops_.stops_)[*found_].text; }

 private:
  StopStrings stops_;
  std::vector<uint32_t> matched_;  // bytes of each stop
  size_t pending_ = 0;
  std::optional<size_t> found_;
};

}  // namespace skiff
