// apps/service_flags.h -- the flags about requests and their answers, for whatever brings requests
// to an engine: the HTTP server and libskiff.so.
#pragma once
#include <string>
#include <vector>

#include "apps/args.h"
#include "engine/llm.h"
#include "serve/service/protocol_config.h"
#include "serve/service/service_config.h"
#include "text/tokenizer.h"

namespace skiff::apps {

// What a request gets that says nothing.
service::SamplingDefaults defaults_of(const model::GenerationDefaults& generation);

// Returns the names that requests may use for the model; the first is the one in replies.
std::vector<std::string> model_names(const Args& args, const std::string& folder);

// `name` labels the metrics.
service::ServiceConfig service_config(const Args& args, const std::string& name,
                                      const engine::Llm& llm, const text::Tokenizer& tokenizer,
                                      const answer::AnswerFormats& formats);

// Returns names, defaults and bounds. What is for the operator of a server to decide is left at its
// default: trusted templates, shared caches, fields of the reasoning. Throws LoadError where the
// model's configuration cannot be read.
service::ProtocolConfig protocol_config(const Args& args, const std::string& folder);

}  // namespace skiff::apps
