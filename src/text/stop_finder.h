// text/stop_finder.h -- searches a stream of bytes for any of several strings.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skiff::text {

// The stop strings of a request, prepared for the search. Immutable; copies share one state, so
// thousands of replies to one request need it once.
class StopStrings {
 public:
  StopStrings() = default;
  // Empty strings are ignored, and so are strings that are not UTF-8, which no reply can contain.
  StopStrings(const std::vector<std::string>& texts);
  StopStrings(std::initializer_list<std::string> texts)
      : StopStrings(std::vector<std::string>(texts)) {}

 private:
  friend class StopFinder;
  struct Stop {
    std::string text;
    std::vector<uint32_t> border;  // [i]: the longest proper border of text's first i + 1 bytes
  };
  std::shared_ptr<const std::vector<Stop>> stops_;  // null if there are none
};

// Runs one automaton of Knuth, Morris and Pratt (1977) per string, in O(number of strings) per byte
// for any lengths. It finds the string that is complete first and, if several are complete with the
// same byte, the longest. Not thread-safe.
class StopFinder {
 public:
  explicit StopFinder(StopStrings stops);

  // Takes one byte; true once a stop is complete, after which no more may be pushed.
  bool push(char byte);
  // Returns how many of the last bytes may begin a stop string.
  size_t pending() const { return pending_; }
  const std::string& found() const { return (*stops_.stops_)[*found_].text; }

 private:
  StopStrings stops_;
  std::vector<uint32_t> matched_;  // matched bytes of each stop string
  size_t pending_ = 0;
  std::optional<size_t> found_;
};

}  // namespace skiff::text
