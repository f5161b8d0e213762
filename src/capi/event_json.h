// capi/event_json.h -- a piece of a reply as the JSON of an event (docs/python.md).
#pragma once
#include <string>
#include <vector>

#include "capi/outbox.h"
#include "text/tokenizer.h"

namespace skiff::capi {

// A JSON array. Pieces of one request are written in the order in which they were taken.
std::string events_json(std::vector<Piece> pieces, const text::Tokenizer& tokenizer);

}  // namespace skiff::capi
