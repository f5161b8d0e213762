// text/answer/read_answer_testing.h -- reads one answer, for tests of formats.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "text/answer/answer_testing.h"

namespace skiff::answer {

inline ExpectedCall call(const char* arguments) { return {"f", OrderedJson::parse(arguments)}; }

// Reads the answer whole, and expects that reading it byte by byte makes no difference.
inline ReadAnswer read(const std::string& format, const std::string& text,
                       const std::string& reasoning = "think", bool starts_in_reasoning = false) {
  auto options = options_for(format, reasoning);
  options->starts_in_reasoning = starts_in_reasoning;
  const auto events = events_of(options, text, true, [&] { return text.size(); });
  EXPECT_EQ(events_of(options, text, true, [] { return 1; }), events) << text;
  return read_events(events);
}

}  // namespace skiff::answer
