// POST /v1/score and /score: vLLM's shape. How well pairs of texts fit.
#include <array>

#include "serve/pooling/write.h"

namespace skiff::pooling {
namespace {

// The names that clients have for the two sides of the pairs.
constexpr std::array<std::array<const char*, 2>, 4> kSpellings{
    {{"queries", "documents"}, {"queries", "items"}, {"text_1", "text_2"}, {"data_1", "data_2"}}};

Parsed read(const OrderedJson& body, PoolingCall& call) {
  const auto given = [&](const char* name) {
    const auto found = body.find(name);
    return found != body.end() && !found->is_null();
  };
  const std::array<const char*, 2>* names = nullptr;
  for (const auto& spelling : kSpellings) {
    if (!given(spelling[0]) || !given(spelling[1])) continue;
    if (names)
      return Error{Code::kInvalid,
                   fmt::format("{} and {} cannot both be given", (*names)[1], spelling[1]),
                   spelling[1]};
    names = &spelling;
  }
  if (!names)
    return Error{Code::kNotFound,
                 "queries and documents are required (or queries and items, text_1 and text_2, "
                 "data_1 and data_2)",
                 "queries"};
  if (auto error = read_texts(body, (*names)[0], call.queries)) return error;
  if (auto error = read_texts(body, (*names)[1], call.documents)) return error;
  if (call.queries.size() == 1 || call.queries.size() == call.documents.size()) return std::nullopt;
  return Error{Code::kInvalid,
               fmt::format("{} has {} entries and {} has {}; the former must have one, or as many",
                           (*names)[0], call.queries.size(), (*names)[1], call.documents.size()),
               (*names)[0]};
}

std::string refuse(const service::PooledModel& model) {
  if (model.scores_pairs()) return {};
  return fmt::format(
      "this server's model has {} classes and gives no single score for a pair of "
      "texts; use /v1/classify",
      model.width);
}

void write(const PoolingCall&, const Answer& answer, const service::PooledModel&,
           const Envelope& envelope, std::string& out) {
  JsonWriter json(out);
  open_list(envelope, "score-", "list", json);
  for (size_t i = 0; i < answer.scores.size(); ++i) {
    json.open_object().key("index").integer(static_cast<int64_t>(i));
    json.key("object").string("score").key("score");
    write_float(answer.scores[i], json);
    json.close_object();
  }
  close_list(answer.usage, json);
}

}  // namespace

const RouteKind& score_route() {
  static const RouteKind kind{
      .input = "documents",
      .fields = joined({common_fields(), pair_fields()}),
      .inputs = {"queries", "documents", "items", "text_1", "text_2", "data_1", "data_2"},
      .read = read,
      .refuse = refuse,
      .write = write};
  return kind;
}

}  // namespace skiff::pooling
