// serve/paddle/legacy_form.h -- PaddleNLP's requests on the paths of OpenAI's API, told from
// OpenAI's by their fields. A stream is JSON lines, without "data:"; errors that concern the
// request have status 200 and an error_msg.
#pragma once
#include <memory>

#include "serve/http/api_keys.h"
#include "serve/openai/other_form.h"
#include "serve/paddle/request.h"
#include "serve/service/protocol_context.h"

namespace skiff::paddle {

// `context` and `keys` outlive it.
std::shared_ptr<const openai::OtherForm> legacy_form(service::ProtocolContext& context,
                                                     const http::ApiKeys& keys,
                                                     const PaddleConfig& config);

}  // namespace skiff::paddle
