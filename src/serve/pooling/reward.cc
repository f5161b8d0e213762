// POST /v1/reward and /v1/chat/reward: FastDeploy's shape. The raw numbers of the head for a
// conversation.
#include "serve/pooling/write.h"

namespace skiff::pooling {
namespace {

std::string refuse(const service::PooledModel& model) {
  if (model.task != service::PooledModel::kEmbed) return {};
  return "this server's model has no head that scores; it has /v1/embeddings. A reward model is "
         "stored as ...ForSequenceClassification or ...ForRewardModel and served without --convert";
}

void write(const PoolingCall&, const Answer& answer, const service::PooledModel&,
           const Envelope& envelope, std::string& out) {
  JsonWriter json(out);
  open_list(envelope, "chat-reward-", "object", json);
  for (size_t i = 0; i < answer.vectors.size(); ++i) {
    json.open_object().key("index").integer(static_cast<int64_t>(i));
    json.key("object").string("reward").key("score");
    write_floats(answer.vectors[i], json);
    json.close_object();
  }
  close_list(answer.usage, json);
}

}  // namespace

const RouteKind& reward_route() {
  static const RouteKind kind{.input = "messages",
                              .fields = joined({common_fields(), conversation_fields()}),
                              .inputs = {"input", "messages"},
                              .read = read_inputs,
                              .refuse = refuse,
                              .write = write};
  return kind;
}

}  // namespace skiff::pooling
