// text/answer/mark_finder.h -- finds marks such as <tool_call> in a stream of bytes.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skiff::answer {

// Withholds only what may be the beginning of a mark. The work per byte is bounded by the lengths
// of the marks. Not thread-safe.
class MarkFinder {
 public:
  // From here on these are looked for; empty ones never occur. Borrows their text. No mark may
  // begin with another one of the same set.
  void look_for(std::initializer_list<std::string_view> marks);
  // Takes one byte. Appends to `text` what belongs to no mark, and returns the number of the mark
  // that is complete now, in the order of look_for().
  std::optional<size_t> push(char byte, std::string& text);
  // Returns what was withheld.
  std::string take_pending() { return std::exchange(pending_, {}); }

 private:
  std::vector<std::string_view> marks_;
  std::string pending_;
};

}  // namespace skiff::answer
