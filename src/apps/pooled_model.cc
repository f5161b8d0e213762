#include "apps/pooled_model.h"

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

Pooling::Rows rows_of(model::PoolRows rows) {
  switch (rows) {
    case model::PoolRows::kFirst:
      return Pooling::kFirst;
    case model::PoolRows::kMean:
      return Pooling::kMean;
    case model::PoolRows::kLast:
      break;
  }
  return Pooling::kLast;
}

service::PooledModel::Task task_of(model::PoolTask task) {
  switch (task) {
    case model::PoolTask::kClassify:
      return service::PooledModel::kClassify;
    case model::PoolTask::kReward:
      return service::PooledModel::kReward;
    case model::PoolTask::kEmbed:
      break;
  }
  return service::PooledModel::kEmbed;
}

std::vector<int32_t> ids_of(const std::vector<std::string>& tokens,
                            const text::Tokenizer& tokenizer, int vocab) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    const auto id = tokenizer.find(token);
    if (!id || *id >= vocab)
      fail_load(
          "--convert classify: the vocabulary has no token \"{}\"; config.json names the tokens of "
          "the classes in \"classifier_from_token\"",
          escaped(token));
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

std::optional<service::PooledModel> pooled_model(const model::ModelConfig& model,
                                                 const text::Tokenizer& tokenizer) {
  if (!model.pooling) return std::nullopt;
  const model::PoolingConfig& config = *model.pooling;
  service::PooledModel out{
      .task = task_of(config.task),
      .pooling = {.rows = rows_of(config.rows),
                  .logits = config.task != model::PoolTask::kEmbed,
                  .columns = ids_of(config.tokens, tokenizer, model.spec.vocab)},
      .normalize = config.normalize,
      .activation = config.activation,
      .matryoshka = config.matryoshka,
      .dimensions = config.dimensions,
      .labels = config.labels,
      .judges_pairs = config.judges_pairs};
  out.width = config.task == model::PoolTask::kEmbed ? model.spec.hidden
              : config.tokens.empty()                ? model.spec.classes
                                                     : static_cast<int>(config.tokens.size());
  return out;
}

}  // namespace skiff::apps
