// serve/responses/writer.h -- answers in the form of OpenAI's Responses API.
#pragma once
#include <memory>

#include "serve/turn/turn.h"

namespace skiff::responses {

std::unique_ptr<turn::TurnWriter> make_writer(turn::TurnInfo info, const turn::TurnBody& body);

}  // namespace skiff::responses
