#include "apps/service_flags.h"

#include <filesystem>

#include "apps/commands.h"
#include "apps/pooled_model.h"
#include "engine/resolved.h"
#include "ops/kv_quant.h"

namespace skiff::apps {
namespace {

// Returns the labels that vLLM and FastDeploy give the metric cache_config_info.
std::map<std::string, std::string> cache_info(const Args& args, const engine::Llm& llm) {
  const engine::Resolved& engine = llm.resolved();
  const auto truth = [](bool value) { return value ? "True" : "False"; };
  return {{"block_size", fmt::format("{}", engine.cache.block_size)},
          {"cache_dtype", describe(engine.precision.kv)},
          {"enable_prefix_caching", truth(engine.cache.prefix_caching)},
          {"gpu_memory_utilization", fmt::format("{}", engine.memory_utilization)},
          {"kvcache_storage_backend", args.text("kvcache-storage-backend")},
          {"max_model_len", fmt::format("{}", engine.limits.max_context)},
          {"num_cpu_blocks", fmt::format("{}", llm.memory().host_slots)},
          {"num_gpu_blocks", fmt::format("{}", llm.memory().blocks)},
          {"num_gpu_blocks_override", args.text("num-gpu-blocks-override")},
          {"swap_space", fmt::format("{}", args.number("swap-space"))}};
}

}  // namespace

service::SamplingDefaults defaults_of(const model::GenerationDefaults& g) {
  return {.temperature = g.do_sample ? g.temperature : 0,
          .top_p = g.top_p,
          .repetition = g.repetition,
          .min_p = g.min_p,
          .top_k = g.top_k,
          .max_tokens = g.max_new_tokens};
}

std::vector<std::string> model_names(const Args& args, const std::string& folder) {
  std::vector<std::string> names = args.texts("served-model-name");
  if (names.empty()) {
    const auto path = std::filesystem::weakly_canonical(folder);
    names.push_back(path.filename().string());
    names.push_back(folder);
  }
  return names;
}

service::ServiceConfig service_config(const Args& args, const std::string& name,
                                      const engine::Llm& llm, const text::Tokenizer& tokenizer,
                                      const answer::AnswerFormats& formats) {
  service::ServiceConfig config;
  config.model_name = name;
  config.answer = formats;
  config.pooled = pooled_model(llm.model(), tokenizer);
  config.max_model_len = llm.resolved().limits.max_context;
  config.vocab_size = llm.model().spec.vocab;
  config.eos = eos_tokens(llm.model(), &tokenizer);
  config.max_logprobs = static_cast<int>(args.integer("max-logprobs"));
  if (!args.on("enable-logprob")) config.max_logprobs = 0;
  config.max_reply_logprobs = args.integer("max-reply-logprobs");
  config.max_num_seqs = llm.resolved().limits.max_seqs * llm.resolved().replicas;
  if (const auto& drafts = llm.resolved().speculation) {
    config.drafts = drafts->tokens;
    config.draft_logprobs = drafts->logprobs;
  }
  config.seed = static_cast<uint64_t>(args.integer("seed"));
  config.admission = {.waiting_tokens = args.integer("max-waiting-tokens"),
                      .waiting_seconds = static_cast<double>(args.integer("max-waiting-time")),
                      .request_seconds = args.number("request-timeout")};
  const peer::Role role = llm.resolved().cache.peers.role;
  config.prefill_only = role == peer::Role::kPrefill;
  config.decode_only = role == peer::Role::kDecode;
  config.constraints = args.text("guided-decoding-backend") != "off";
  config.constraint_space = !args.on("guided-decoding-disable-any-whitespace");
  config.constrain_reasoning = args.on("guided-decoding-in-reasoning");
  config.cache_info = cache_info(args, llm);
  return config;
}

service::ProtocolConfig protocol_config(const Args& args, const std::string& folder) {
  service::ProtocolConfig config;
  config.model_names = model_names(args, folder);
  config.model_path = folder;
  config.defaults = defaults_of(
      model::read_model_config(folder, args.text("model-config-name"), pooling_choice(args))
          .generation);
  config.refuse_unknown_fields = args.on("refuse-unknown-fields");
  config.max_concurrency = static_cast<int>(args.integer("max-concurrency"));
  config.policy.priority = args.text("scheduling-policy") == "priority";
  return config;
}

}  // namespace skiff::apps
