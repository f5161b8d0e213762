// POST /v1/embeddings: OpenAI's shape, with FastDeploy's and vLLM's further fields.
#include "serve/pooling/write.h"

namespace skiff::pooling {
namespace {

std::string refuse(const service::PooledModel& model) {
  if (model.task == service::PooledModel::kEmbed) return {};
  return "this server's model gives scores and no embeddings; use /v1/score, /v1/rerank, "
         "/v1/classify or /v1/reward, or start it with --runner pooling --convert embed";
}

void write(const PoolingCall& call, const Answer& answer, const service::PooledModel& model,
           const Envelope& envelope, std::string& out) {
  const bool normalize = call.normalize.value_or(model.normalize);
  JsonWriter json(out);
  open_list(envelope, "embd-", "list", json);
  for (size_t i = 0; i < answer.vectors.size(); ++i) {
    const std::vector<float> vector =
        service::embedding_of(answer.vectors[i], call.dimensions, normalize);
    json.open_object().key("index").integer(static_cast<int64_t>(i));
    json.key("object").string("embedding").key("embedding");
    if (call.base64)
      write_base64(vector, json);
    else
      write_floats(vector, json);
    json.close_object();
  }
  close_list(answer.usage, json);
}

}  // namespace

const RouteKind& embeddings_route() {
  static const RouteKind kind{
      .input = "input",
      .fields = joined({common_fields(), embedding_fields(), conversation_fields()}),
      .inputs = {"input", "messages"},
      .read = read_inputs,
      .refuse = refuse,
      .write = write};
  return kind;
}

}  // namespace skiff::pooling
