// text/answer/answer_event.h -- what an answer of a model consists of: reasoning, content, calls.
#pragma once
#include <string>
#include <vector>

namespace skiff::answer {

enum class Part {
  kReasoning,  // text: a piece of the reasoning
  kContent,    // text: a piece of what the user reads
  kCallBegin,  // text: the name of the function, complete; id: the call's
  kArguments,  // text: a piece of the call's arguments; all pieces together are one JSON object
  kCallEnd,    // the arguments of the call are complete
  kBroken,     // the call cannot be read after all; text: what the model wrote instead of it
};

// One event. Pieces of text may be cut anywhere between characters; events of calls come in order,
// and calls do not overlap.
struct AnswerEvent {
  Part part = Part::kContent;
  std::string text;
  std::string id = {};  // kCallBegin
  int call = -1;        // the number of the call, from 0; -1 where the event belongs to none
  bool operator==(const AnswerEvent&) const = default;
};
using AnswerEvents = std::vector<AnswerEvent>;

// Appends an event; a piece that continues the last event's part is joined to it.
inline void append_event(AnswerEvents& events, AnswerEvent event) {
  const bool piece = event.part == Part::kReasoning || event.part == Part::kContent ||
                     event.part == Part::kArguments;
  if (piece && event.text.empty()) return;
  if (piece && !events.empty() && events.back().part == event.part &&
      events.back().call == event.call)
    events.back().text += event.text;
  else
    events.push_back(std::move(event));
}

}  // namespace skiff::answer
