// POST /v1/rerank, /v2/rerank and /rerank: the shape of Jina, Cohere and vLLM. The documents by
// falling relevance to a query.
#include <algorithm>
#include <numeric>

#include "serve/pooling/write.h"

namespace skiff::pooling {
namespace {

std::vector<Field> rerank_fields() {
  return {
      {"top_n",
       [](auto& v, auto& c) { return openai::read_integer(v, 0, int64_t{1} << 31, c.top_n); }},
      {"return_documents",
       [](auto& v, auto& c) { return openai::read_boolean(v, c.return_documents); }},
  };
}

Parsed read(const OrderedJson& body, PoolingCall& call) {
  const auto query = body.find("query");
  if (query != body.end() && query->is_array())
    return Error{Code::kInvalid, "query must be one text, but is " + openai::described(*query),
                 "query"};
  if (auto error = read_texts(body, "query", call.queries)) return error;
  return read_texts(body, "documents", call.documents);
}

std::string refuse(const service::PooledModel& model) { return score_route().refuse(model); }

void write(const PoolingCall& call, const Answer& answer, const service::PooledModel&,
           const Envelope& envelope, std::string& out) {
  std::vector<size_t> order(answer.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return answer.scores[a] > answer.scores[b]; });
  if (call.top_n > 0) order.resize(std::min(order.size(), static_cast<size_t>(call.top_n)));
  JsonWriter json(out);
  json.open_object().key("id").string("rerank-" + envelope.id);
  json.key("model").string(envelope.model).key("results").open_array();
  for (const size_t i : order) {
    json.open_object().key("index").integer(static_cast<int64_t>(i));
    if (call.return_documents)
      json.key("document").open_object().key("text").string(call.documents[i]).close_object();
    json.key("relevance_score");
    write_float(answer.scores[i], json);
    json.close_object();
  }
  json.close_array();
  write_usage(answer.usage, json);
  json.close_object();
}

}  // namespace

const RouteKind& rerank_route() {
  static const RouteKind kind{.input = "documents",
                              .fields = joined({common_fields(), pair_fields(), rerank_fields()}),
                              .inputs = {"query", "documents"},
                              .read = read,
                              .refuse = refuse,
                              .write = write};
  return kind;
}

}  // namespace skiff::pooling
