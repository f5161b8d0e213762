// serve/openai/failures.h -- why a generation ended without a reply, as an error of the API.
#pragma once
#include <string>

#include "serve/http/api_error.h"
#include "serve/service/protocol_context.h"

namespace skiff::openai {

// The model's name in the reply to a request that asked for this one.
std::string model_of(const service::ProtocolContext& context, const std::string& asked);

// The error for a request that the engine ended (Finish::kExhausted or kCancelled).
http::ApiError why_ended(const service::ProtocolContext& context, const service::Reply& reply);

// The error for a request that OpenGeneration::cut_off() ends.
http::ApiError why_cut_off(service::CutOff why);

}  // namespace skiff::openai
