#include "text/stop_finder.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace skiff::text {
namespace {

// Returns how many bytes of `text` match once `byte` follows `matched` matching bytes.
uint32_t advance(std::string_view text, const std::vector<uint32_t>& border, uint32_t matched,
                 char byte) {
  while (matched > 0 && text[matched] != byte) matched = border[matched - 1];
  return text[matched] == byte ? matched + 1 : 0;
}

}  // namespace

StopStrings::StopStrings(const std::vector<std::string>& texts) {
  std::vector<Stop> stops;
  for (const std::string& text : texts) {
    if (text.empty() || !is_valid_utf8(text)) continue;
    std::vector<uint32_t> border(text.size(), 0);
    for (size_t i = 1; i < text.size(); ++i)
      border[i] = advance(text, border, border[i - 1], text[i]);
    stops.push_back({text, std::move(border)});
  }
  if (!stops.empty()) stops_ = std::make_shared<const std::vector<Stop>>(std::move(stops));
}

StopFinder::StopFinder(StopStrings stops)
    : stops_(std::move(stops)), matched_(stops_.stops_ ? stops_.stops_->size() : 0, 0) {}

bool StopFinder::push(char byte) {
  pending_ = 0;
  for (size_t i = 0; i < matched_.size(); ++i) {
    const StopStrings::Stop& stop = (*stops_.stops_)[i];
    matched_[i] = advance(stop.text, stop.border, matched_[i], byte);
    pending_ = std::max<size_t>(pending_, matched_[i]);
    const bool complete = matched_[i] == stop.text.size();
    if (complete && (!found_ || stop.text.size() > found().size())) found_ = i;
  }
  return found_.has_value();
}

}  // namespace skiff::text
