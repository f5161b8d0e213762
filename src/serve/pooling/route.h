// serve/pooling/route.h -- what distinguishes the routes of this room; each is one file and a line
// in the table of routes.cc.
#pragma once
#include <string>
#include <vector>

#include "serve/http/api_error.h"
#include "serve/pooling/call.h"
#include "serve/service/pooled_batch.h"
#include "serve/service/pooled_model.h"

namespace skiff::pooling {

// What the engine has computed for a call.
struct Answer {
  std::vector<std::vector<float>> vectors;  // for each input: its embedding, or scores of classes
  std::vector<float> scores;                // for each pair
  service::Usage usage;
};

// The beginning of a reply: its id without prefix, its model, and the time in Unix seconds.
struct Envelope {
  std::string id, model;
  int64_t created = 0;
};

struct RouteKind {
  const char* input;  // the field that errors about the input name
  std::vector<Field> fields;
  std::vector<std::string_view> inputs;  // fields that `read` reads
  Parsed (*read)(const OrderedJson& body, PoolingCall& call);
  // Why the model has no such route; empty if it has.
  std::string (*refuse)(const service::PooledModel& model);
  void (*write)(const PoolingCall& call, const Answer& answer, const service::PooledModel& model,
                const Envelope& envelope, std::string& out);
  http::HttpResponse (*refusal)(const http::ApiError& error) = http::error_response;
};

const RouteKind& embeddings_route();
const RouteKind& reward_route();
const RouteKind& classify_route();
const RouteKind& rerank_route();
const RouteKind& score_route();

// Parses a body.
Result<PoolingCall> parse_call(const OrderedJson& body, const RouteKind& kind);

// The tables of fields as one.
std::vector<Field> joined(std::vector<std::vector<Field>> tables);

}  // namespace skiff::pooling
