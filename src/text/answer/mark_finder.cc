#include "text/answer/mark_finder.h"

#include <algorithm>

namespace skiff::answer {

void MarkFinder::look_for(std::initializer_list<std::string_view> marks) {
  marks_.assign(marks.begin(), marks.end());
}

std::optional<size_t> MarkFinder::push(char byte, std::string& text) {
  pending_ += byte;
  while (!pending_.empty()) {
    const auto begins = [this](std::string_view mark) { return mark.starts_with(pending_); };
    const auto found = std::ranges::find_if(marks_, begins);
    if (found == marks_.end()) {
      text += pending_.front();
      pending_.erase(0, 1);
      continue;
    }
    if (found->size() > pending_.size()) return std::nullopt;
    pending_.clear();
    return static_cast<size_t>(found - marks_.begin());
  }
  return std::nullopt;
}

}  // namespace skiff::answer
