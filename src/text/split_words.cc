#include "text/split_words.h"

#include <algorithm>

namespace skiff::text {

SplitBehavior split_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail_load("{}: behavior {} is not supported", where, name.substr(0, 60));
}

SplitPattern SplitPattern::read(const Fields& pattern) {
  if (!pattern.has("String"))
    return from_regex(pattern.need<std::string>("Regex"), pattern.where());
  SplitPattern out;
  out.text = pattern.need<std::string>("String");
  if (out.text.empty()) fail_load("{}: the pattern is empty", pattern.where());
  return out;
}

SplitPattern SplitPattern::from_regex(std::string_view regex, const std::string& where) {
  SplitPattern out;
  out.words = WordPattern::find(regex);
  if (out.words) return out;
  auto compiled = TextRegex::compile(regex);
  if (!compiled) fail_load("{}: {}", where, compiled.error().what);
  out.regex = std::move(*compiled);
  return out;
}

Splitter::Splitter(const SplitPattern& pattern, SplitBehavior behavior)
    : pattern_(pattern), behavior_(behavior) {
  if (pattern.regex) scan_.emplace(*pattern.regex);
}

void Splitter::find(std::string_view text) {
  matches_.clear();
  if (scan_) return scan_->find_all(text, matches_);
  if (pattern_.words) return find_words(text);
  const std::string& needle = pattern_.text;
  for (size_t at = 0; (at = text.find(needle, at)) != text.npos; at += needle.size())
    matches_.push_back({at, at + needle.size()});
}

void Splitter::find_words(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const WordPattern::Piece piece = pattern_.words->next(text, at);
    if (piece.match) matches_.push_back({at, piece.end});
    at = piece.end;
  }
}

const std::vector<TextRange>& Splitter::split(std::string_view text) {
  find(text);
  parts_.clear();
  size_t done = 0;
  for (const TextRange match : matches_) {
    if (match.begin > done) parts_.push_back({{done, match.begin}, pattern_.invert});
    parts_.push_back({match, !pattern_.invert});
    done = match.end;
  }
  if (done < text.size()) parts_.push_back({{done, text.size()}, pattern_.invert});

  pieces_.clear();
  if (behavior_ == SplitBehavior::kMergedWithPrevious) {
    merge_previous();
  } else if (behavior_ == SplitBehavior::kMergedWithNext) {
    merge_next();
  } else {
    const Part* last = nullptr;
    for (const Part& part : parts_) {
      if (behavior_ == SplitBehavior::kRemoved && part.match) continue;
      if (behavior_ == SplitBehavior::kContiguous && last && last->match == part.match)
        pieces_.back().end = part.range.end;
      else
        pieces_.push_back(part.range);
      last = &part;
    }
  }
  return pieces_;
}

// Only the first of several consecutive matches joins the word before.
void Splitter::merge_previous() {
  bool after_match = false;
  for (const Part& part : parts_) {
    if (part.match && !after_match && !pieces_.empty())
      pieces_.back().end = part.range.end;
    else
      pieces_.push_back(part.range);
    after_match = part.match;
  }
}

// Only the last of several consecutive matches joins the word after.
void Splitter::merge_next() {
  bool before_match = false;
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    if (part->match && !before_match && !pieces_.empty())
      pieces_.back().begin = part->range.begin;
    else
      pieces_.push_back(part->range);
    before_match = part->match;
  }
  std::reverse(pieces_.begin(), pieces_.end());
}

}  // namespace skiff::text
