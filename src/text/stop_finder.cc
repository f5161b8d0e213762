#include "text/stop_finder.h"

#include <algorithm>

namespace skiff {
namespace {

// The longest prefix of `text` that ends with `byte` after `matched` bytes did.
size_t advance(std::string_view text, const std::vector<size_t>& border, size_t matched,
               char byte) {
  while (matched > 0 && text[matched] != byte) matched = border[matched - 1];
  return text[matched] == byte ? matched + 1 : 0;
}

}  // namespace

StopFinder::StopFinder(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    if (text.empty()) continue;
    std::vector<size_t> border(text.size(), 0);
    for (size_t i = 1; i < text.size(); ++i)
      border[i] = advance(text, border, border[i - 1], text[i]);
    stops_.push_back({text, std::move(border)});
  }
}

bool StopFinder::push(char byte) {
  pending_ = 0;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    stop.matched = advance(stop.text, stop.border, stop.matched, byte);
    pending_ = std::max(pending_, stop.matched);
    const bool complete = stop.matched == stop.text.size();
    if (complete && (!found_ || stop.text.size() > found().size())) found_ = i;
  }
  return found_.has_value();
}

}  // namespace skiff
