#include "model/pooling.h"

#include <algorithm>
#include <filesystem>

#include "base/load_error.h"
#include "base/log.h"
#include "model/family.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

constexpr JsonLimits kSmallFile{.max_bytes = 1u << 20, .max_depth = 16};
constexpr int kMaxClasses = 1 << 16;

struct RowsName {
  std::string_view flag, mode;  // in --override-pooler-config and in 1_Pooling/config.json
  PoolRows rows;
};
constexpr RowsName kRows[] = {{"LAST", "lasttoken", PoolRows::kLast},
                              {"CLS", "cls_token", PoolRows::kFirst},
                              {"CLS", "cls", PoolRows::kFirst},
                              {"MEAN", "mean_tokens", PoolRows::kMean},
                              {"MEAN", "mean", PoolRows::kMean}};

std::optional<PoolRows> rows_named(std::string_view word, std::string_view RowsName::*column) {
  for (const RowsName& name : kRows)
    if (name.*column == word) return name.rows;
  return std::nullopt;
}

bool has_ending(std::string_view text, std::string_view end, std::string_view* stem) {
  if (!text.ends_with(end) || text.size() == end.size()) return false;
  *stem = text.substr(0, text.size() - end.size());
  return true;
}

std::optional<SentenceModules> sentence_modules(const std::string& dir) {
  const fs::path file = fs::path(dir) / "modules.json";
  if (dir.empty() || !fs::exists(file)) return std::nullopt;
  SentenceModules out;
  const auto folder = read_modules(read_json_file(file.string(), kSmallFile), file.string(), out);
  if (!folder) return std::nullopt;
  const std::string config = (fs::path(dir) / *folder / "config.json").string();
  out.rows = read_pooling_mode(read_json_file(config, kSmallFile), config);
  return out;
}

// Where config.json names no classes, its class has two.
std::vector<std::string> read_labels(const Fields& config, int* classes) {
  const Fields names = config.child("id2label");
  const int fallback = names.json().empty() ? 2 : static_cast<int>(names.json().size());
  *classes = get_int(config, "num_labels", fallback, 1, kMaxClasses);
  std::vector<std::string> labels;
  for (int i = 0; i < *classes && !names.json().empty(); ++i)
    labels.push_back(
        names.get<std::string>(std::to_string(i), "LABEL_" + std::to_string(i)).substr(0, 256));
  return labels;
}

std::vector<int> read_dimensions(const Fields& fields, int hidden) {
  std::vector<int> dimensions;
  for (const Json& value : fields.get<std::vector<Json>>("matryoshka_dimensions", {})) {
    const std::optional<int> n = int_in(value, 1, hidden);
    if (!n)
      fail_load("{}: \"matryoshka_dimensions\" has {}; a row has {} numbers", fields.where(),
                value.dump().substr(0, 80), hidden);
    dimensions.push_back(*n);
  }
  return dimensions;
}

void read_matryoshka(const Fields& fields, int hidden, PoolingConfig& out) {
  if (fields.has("matryoshka_dimensions")) out.dimensions = read_dimensions(fields, hidden);
  out.matryoshka = fields.get<bool>("is_matryoshka", out.matryoshka || !out.dimensions.empty());
}

// --override-pooler-config.
void apply_flag(const std::string& text, int hidden, PoolingConfig& out) {
  constexpr const char* kFlag = "--override-pooler-config";
  constexpr std::string_view kKnown[] = {"pooling_type",          "normalize",     "activation",
                                         "matryoshka_dimensions", "is_matryoshka", "softmax"};
  if (text.empty()) return;
  const auto json = parse_json(text, kSmallFile);
  if (!json) fail_load("{}: {}", kFlag, json.error().what);
  if (!json->is_object()) fail_load("{} must be a JSON object", kFlag);
  for (const auto& [key, value] : json->items())
    if (std::ranges::find(kKnown, key) == std::end(kKnown))
      fail_load(
          "{}: there is no \"{}\"; known: pooling_type, normalize, activation (or softmax), "
          "is_matryoshka, matryoshka_dimensions",
          kFlag, escaped(key));
  const Fields fields(*json, kFlag);
  const auto type = fields.get<std::string>("pooling_type", "");
  if (const auto rows = rows_named(type, &RowsName::flag))
    out.rows = *rows;
  else if (!type.empty())
    fail_load("{}: \"pooling_type\" \"{}\" is not supported; known: LAST, CLS, MEAN", kFlag,
              escaped(type));
  out.normalize = fields.get<bool>("normalize", out.normalize);
  out.activation = fields.get<bool>("activation", fields.get<bool>("softmax", out.activation));
  read_matryoshka(fields, hidden, out);
}

PoolTask task_of(const PoolingChoice& choice, const Architecture& architecture, bool declared) {
  const bool rewards = architecture.kind == Architecture::kRewarder;
  const bool classifies = rewards || architecture.kind == Architecture::kClassifier;
  if (choice.convert == "embed") return PoolTask::kEmbed;
  if (choice.convert == "classify") return PoolTask::kClassify;
  if (choice.convert == "reward") {
    if (classifies) return PoolTask::kReward;
    fail_load(
        "--convert reward: {} has no head that scores (score.weight); use --convert embed or "
        "classify",
        architecture.causal);
  }
  if (choice.convert == "none" && !declared)
    fail_load(
        "--convert none: {} has no way of pooling of its own; use --convert embed or classify",
        architecture.causal);
  if (rewards) return PoolTask::kReward;
  return classifies ? PoolTask::kClassify : PoolTask::kEmbed;
}

void choose_head(const Fields& config, const Architecture& architecture, PoolingConfig& pooling,
                 ModelSpec& spec) {
  if (pooling.task == PoolTask::kEmbed) {
    spec.head = HeadKind::kNone;
    return;
  }
  if (pooling.rows != PoolRows::kLast)
    fail_load("a model that scores takes the last token's row (pooling_type LAST)");
  const bool qwen3 = architecture.causal.starts_with("Qwen3");
  if (architecture.kind == Architecture::kClassifier) {
    spec.head = HeadKind::kClasses;
    pooling.labels = read_labels(config, &spec.classes);
    pooling.judges_pairs = qwen3 && spec.classes == 1;
    return;
  }
  // One number by the row's own width, whatever "num_labels" says: its class has no other form.
  if (architecture.kind == Architecture::kRewarder) {
    spec.head = HeadKind::kClasses;
    spec.classes = 1;
    spec.score_width = spec.hidden;
    return;
  }
  pooling.tokens = config.get<std::vector<std::string>>("classifier_from_token", {"no", "yes"});
  if (pooling.tokens.empty() || pooling.tokens.size() > 16)
    fail_load("{}: \"classifier_from_token\" has {} tokens; it must have 1 to 16", config.where(),
              pooling.tokens.size());
  pooling.labels = pooling.tokens;
  pooling.judges_pairs = qwen3;
}

}  // namespace

Architecture read_architecture(std::string_view name) {
  std::string_view stem;
  if (has_ending(name, "ForSequenceClassification", &stem))
    return {Architecture::kClassifier, std::string(stem) + "ForCausalLM"};
  if (has_ending(name, "ForRewardModel", &stem))
    return {Architecture::kRewarder, std::string(stem) + "ForCausalLM"};
  if (has_ending(name, "Model", &stem))
    return {Architecture::kBare, std::string(stem) + "ForCausalLM"};
  return {Architecture::kCausal, std::string(name)};
}

std::optional<std::string> read_modules(const Json& modules, const std::string& where,
                                        SentenceModules& out) {
  if (!modules.is_array()) fail_load("{}: it must hold a list of modules", where);
  std::optional<std::string> pooling;
  for (const Json& module : modules) {
    if (!module.is_object()) fail_load("{}: a module is no object", where);
    const Fields fields(module, where);
    const auto type = fields.get<std::string>("type", "");
    const std::string kind = type.substr(type.rfind('.') + 1);  // npos + 1 is 0
    if (kind == "Transformer") continue;
    if (kind == "Normalize") {
      out.normalize = true;
      continue;
    }
    if (kind != "Pooling")
      fail_load(
          "{}: a module of type \"{}\" is not supported; known: Transformer, Pooling, "
          "Normalize",
          where, escaped(type.substr(0, 100)));
    const fs::path folder = fields.get<std::string>("path", "");
    const bool outside = folder.is_absolute() || std::ranges::find(folder, "..") != folder.end();
    if (pooling || folder.empty() || outside)
      fail_load("{}: the Pooling module must be one folder inside of the model's", where);
    pooling = folder.string();
  }
  return pooling;
}

PoolRows read_pooling_mode(const Json& config, const std::string& where) {
  constexpr std::string_view kPrefix = "pooling_mode_";
  const Fields fields(config, where);
  std::vector<std::string> modes;
  if (fields.has("pooling_mode")) modes.push_back(fields.need<std::string>("pooling_mode"));
  for (const auto& [key, value] : config.items())
    if (key.starts_with(kPrefix) && fields.get<bool>(key, false))
      modes.push_back(key.substr(kPrefix.size()));
  const auto rows = modes.size() == 1 ? rows_named(modes[0], &RowsName::mode) : std::nullopt;
  if (rows) return *rows;
  fail_load(
      "{}: {}; --override-pooler-config '{{\"pooling_type\": \"LAST\"}}' (or CLS, MEAN) "
      "chooses another",
      where,
      modes.empty() ? "no pooling mode is on"
      : modes.size() > 1
          ? "several pooling modes are on, which is not supported"
          : "pooling mode \"" + escaped(modes[0].substr(0, 100)) + "\" is not supported");
}

std::optional<PoolingConfig> choose_pooling(const std::string& dir, const Fields& config,
                                            const Architecture& architecture,
                                            const PoolingChoice& choice, ModelSpec& spec) {
  const bool headless = architecture.kind != Architecture::kCausal;
  if (choice.runner == "generate") {
    if (headless)
      fail_load("--runner generate: {} stores a model without a language head; leave the flag out",
                config.where());
    return std::nullopt;
  }
  const bool asked =
      choice.runner == "pooling" || (choice.convert != "auto" && choice.convert != "none");
  const bool has_modules = !dir.empty() && fs::exists(fs::path(dir) / "modules.json");
  const auto generates = [&]() -> std::optional<PoolingConfig> {
    if (!choice.pooler.empty())
      fail_load(
          "--override-pooler-config: the model generates and is not pooled; add --runner "
          "pooling");
    return std::nullopt;
  };
  if (!asked && !headless && !has_modules) return generates();
  const bool overridden = choice.pooler.find("pooling_type") != std::string::npos;
  const auto modules = overridden ? std::nullopt : sentence_modules(dir);
  if (!asked && !headless && !overridden && !modules) return generates();
  PoolingConfig pooling{.task = task_of(choice, architecture, headless || modules)};
  if (modules && pooling.task == PoolTask::kEmbed) {
    pooling.rows = modules->rows;
    pooling.normalize = modules->normalize;
  }
  pooling.activation = pooling.task != PoolTask::kReward;
  read_matryoshka(config, spec.hidden, pooling);
  apply_flag(choice.pooler, spec.hidden, pooling);
  choose_head(config, architecture, pooling, spec);
  return pooling;
}

}  // namespace skiff::model
