// POST /v1/classify and /classify: vLLM's shape. The probabilities of the classes of each input.
#include <algorithm>

#include "serve/pooling/write.h"

namespace skiff::pooling {
namespace {

std::string refuse(const service::PooledModel& model) {
  if (model.task != service::PooledModel::kEmbed) return {};
  return "this server's model gives embeddings and has no classes; use /v1/embeddings, or start it "
         "with --runner pooling --convert classify";
}

void write(const PoolingCall& call, const Answer& answer, const service::PooledModel& model,
           const Envelope& envelope, std::string& out) {
  JsonWriter json(out);
  open_list(envelope, "classify-", "list", json);
  for (size_t i = 0; i < answer.vectors.size(); ++i) {
    const std::vector<float> scores =
        service::class_scores(answer.vectors[i], call.activation.value_or(model.activation));
    const auto best = static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
    json.open_object().key("index").integer(static_cast<int64_t>(i)).key("label");
    json.string(best < model.labels.size() ? model.labels[best] : fmt::format("LABEL_{}", best));
    json.key("probs");
    write_floats(scores, json);
    json.key("num_classes").integer(std::ssize(scores)).close_object();
  }
  close_list(answer.usage, json);
}

}  // namespace

const RouteKind& classify_route() {
  static const RouteKind kind{
      .input = "input",
      .fields = joined({common_fields(), conversation_fields(), pair_fields()}),
      .inputs = {"input", "messages"},
      .read = read_inputs,
      .refuse = refuse,
      .write = write};
  return kind;
}

}  // namespace skiff::pooling
