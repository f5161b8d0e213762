// serve/pooling/call.h -- the body of a request to embed, score or rerank texts, as a value that
// all routes of this room share.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/openai/values.h"
#include "serve/service/service.h"

namespace skiff::pooling {

// What is to be pooled: prompts each by itself, or pairs of texts.
struct PoolingCall {
  std::string model;
  service::Request request;  // what all prompts share; `input` is not used
  std::vector<service::PromptInput> inputs;
  // Pairs: one query for all documents, or one for each.
  std::vector<std::string> queries, documents;
  std::string instruction;          // what a judge of pairs is asked; empty: the model's own
  std::optional<int64_t> truncate;  // the most tokens of a prompt; -1: as many as the context has
  bool base64 = false;              // embeddings as little-endian floats in base64
  int dimensions = 0;               // 0: all
  std::optional<bool> normalize, activation;
  int64_t top_n = 0;  // documents in the reply, the best ones; 0: all
  bool return_documents = true;
  std::string request_id;
  std::optional<bool> add_special;  // default: for texts, not for conversations
  text::Conversation conversation;  // the options of `messages`
  std::vector<std::string> unknown_fields;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
};

// A field of a body; the value is not null.
struct Field {
  std::string_view name;
  std::function<openai::MaybeProblem(const OrderedJson& value, PoolingCall& call)> read;
};

// Error::field names the field; kNotFound means that it is missing.
using Parsed = std::optional<Error>;

// The fields that every route has.
std::vector<Field> common_fields();
// How an embedding is written.
std::vector<Field> embedding_fields();
// How a conversation becomes a prompt.
std::vector<Field> conversation_fields();
// How pairs are judged.
std::vector<Field> pair_fields();

// Reads the fields of `tables`; names in `inputs` are left to the route.
Parsed read_fields(const OrderedJson& body, const std::vector<Field>& fields,
                   const std::vector<std::string_view>& inputs, PoolingCall& call);

// Reads `input` or, where there is none, `messages` into call.inputs.
Parsed read_inputs(const OrderedJson& body, PoolingCall& call);
// Reads a string, {"text": string}, or a list of these.
Parsed read_texts(const OrderedJson& body, std::string_view name, std::vector<std::string>& out);

// Bound on the prompts of one request.
constexpr size_t kMaxPrompts = 2048;

}  // namespace skiff::pooling
