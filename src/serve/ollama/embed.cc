#include "serve/ollama/embed.h"

#include "serve/ollama/to_chat.h"
#include "serve/ollama/writer.h"
#include "serve/pooling/write.h"

namespace skiff::ollama {
namespace {

using openai::MaybeProblem;
using pooling::Answer, pooling::Envelope, pooling::Field, pooling::Parsed, pooling::PoolingCall;

http::HttpResponse refusal(const http::ApiError& error) {
  return {.status = error.status, .body = error_text(error), .headers = error.headers};
}

MaybeProblem read_truncate(const OrderedJson& value, PoolingCall&) {
  bool cut = true;
  return openai::read_boolean(value, cut);
}

// The model is loaded already, and its options are those of the server.
MaybeProblem ignored(const OrderedJson&, PoolingCall&) { return std::nullopt; }

std::vector<Field> own_fields() {
  return {{"truncate", read_truncate},
          {"options", ignored},
          {"keep_alive", ignored},
          {"dimensions", [](auto& value, auto& call) {
             int64_t number = 0;
             if (auto problem = openai::read_integer(value, 1, 1 << 20, number)) return problem;
             call.dimensions = static_cast<int>(number);
             return MaybeProblem();
           }}};
}

// Texts that are too long are cut unless `truncate` is false.
void read_common(const OrderedJson& body, PoolingCall& call) {
  call.model = model_name(body);
  const auto cut = body.find("truncate");
  if (cut == body.end() || *cut != false) call.truncate = call.truncate.value_or(-1);
}

Parsed read_inputs(const OrderedJson& body, PoolingCall& call) {
  read_common(body, call);
  call.normalize = true;
  return pooling::read_inputs(body, call);
}

Parsed read_prompt(const OrderedJson& body, PoolingCall& call) {
  read_common(body, call);
  const auto prompt = body.find("prompt");
  if (prompt == body.end()) return Error{Code::kNotFound, "prompt is required", "prompt"};
  if (!prompt->is_string())
    return Error{Code::kInvalid, "prompt must be a string, but is " + openai::described(*prompt),
                 "prompt"};
  call.inputs.emplace_back(prompt->get<std::string>());
  return std::nullopt;
}

void write_embeddings(const PoolingCall& call, const Answer& answer,
                      const service::PooledModel& model, const Envelope& envelope,
                      std::string& out) {
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - call.begun;
  JsonWriter json(out);
  json.open_object().key("model").string(envelope.model).key("embeddings").open_array();
  for (const auto& vector : answer.vectors)
    pooling::write_floats(
        service::embedding_of(vector, call.dimensions, call.normalize.value_or(model.normalize)),
        json);
  json.close_array().key("total_duration").integer(taken.count());
  json.key("load_duration").integer(0);
  json.key("prompt_eval_count").integer(answer.usage.prompt).close_object();
}

void write_embedding(const PoolingCall& call, const Answer& answer,
                     const service::PooledModel& model, const Envelope&, std::string& out) {
  JsonWriter json(out);
  json.open_object().key("embedding");
  pooling::write_floats(
      service::embedding_of(answer.vectors.front(), call.dimensions, model.normalize), json);
  json.close_object();
}

pooling::RouteKind kind_of(const char* input, decltype(pooling::RouteKind::read) read,
                           decltype(pooling::RouteKind::write) write) {
  return {.input = input,
          .fields = pooling::joined({own_fields(), pooling::common_fields()}),
          .inputs = {input, "name"},
          .read = read,
          .refuse = pooling::embeddings_route().refuse,
          .write = write,
          .refusal = refusal};
}

}  // namespace

const pooling::RouteKind& embed_kind() {
  static const pooling::RouteKind kind = kind_of("input", read_inputs, write_embeddings);
  return kind;
}

const pooling::RouteKind& embedding_kind() {
  static const pooling::RouteKind kind = kind_of("prompt", read_prompt, write_embedding);
  return kind;
}

}  // namespace skiff::ollama
