#include "capi/loaded.h"

#include <ctime>

#include "apps/answer_flags.h"
#include "apps/commands.h"
#include "apps/scheduler_flags.h"
#include "apps/service_flags.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/resolved.h"

namespace skiff::capi {
namespace {

engine::EngineConfig config_of(const apps::Args& args, const std::string& folder, LoadHooks hooks) {
  engine::EngineConfig config = apps::engine_config(args, folder);
  config.quiet = !spdlog::should_log(spdlog::level::info);
  config.progress = [progress = std::move(hooks.progress)](uint64_t done, uint64_t total) {
    progress(total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total));
  };
  config.failed = std::move(hooks.failed);
  return config;
}

}  // namespace

Loaded::Loaded(const apps::Args& args, LoadHooks hooks) {
  apps::check_admission_flags(args);
  const std::string folder = apps::model_folder(args);
  service::ProtocolConfig protocol = apps::protocol_config(args, folder);
  protocol.policy.trust_chat_template = true;  // whoever calls runs code in this process anyway
  tokenizer_ = apps::need_tokenizer(args, folder);
  std::shared_ptr<const text::ChatTemplate> chat = apps::find_chat_template(args, folder);
  has_chat_ = chat != nullptr;
  const answer::AnswerFormats formats = apps::answer_formats(args, chat.get());
  auto events = std::make_shared<service::EventQueue>();
  llm_ = engine::Llm::start(config_of(args, folder, std::move(hooks)),
                            [events](std::vector<Event> batch) { events->push(std::move(batch)); });
  eos_ = apps::eos_tokens(llm_->model(), tokenizer_.get());
  port_ = std::make_unique<service::LlmPort>(*llm_);
  service_ = std::make_unique<service::EngineService>(
      apps::service_config(args, protocol.model_names.front(), *llm_, *tokenizer_, formats), *port_,
      events, tokenizer_, chat);
  protocol_ = std::make_shared<service::ProtocolContext>(std::move(protocol), *service_,
                                                         std::time(nullptr));
}

void Loaded::stop() {
  protocol_->admission.begin_drain();
  service_->stop();
  if (llm_) llm_->stop(/*drain=*/false);
}

void Loaded::abandon() {
  protocol_->admission.begin_drain();
  service_->stop();
  // Its thread is parked in the hook and cannot be joined; both live as long as the process.
  [[maybe_unused]] const engine::Llm* parked = llm_.release();
}

std::string info_json(Loaded& loaded) {
  const engine::Llm& llm = loaded.llm();
  const engine::Resolved& engine = llm.resolved();
  const service::SamplingDefaults& defaults = loaded.protocol().config.defaults;
  const OrderedJson info = {{"version", SKIFF_VERSION},
                            {"model", engine.model.folder},
                            {"names", loaded.protocol().config.model_names},
                            {"architecture", llm.model().spec.arch},
                            {"device", engine::name(engine.device)},
                            {"dtype", name(engine.precision.act)},
                            {"max_model_len", engine.limits.max_context},
                            {"max_num_seqs", engine.limits.max_seqs},
                            {"max_num_batched_tokens", engine.limits.max_rows},
                            {"vocab_size", llm.model().spec.vocab},
                            {"block_size", engine.cache.block_size},
                            {"num_blocks", llm.memory().blocks},
                            {"eos_token_ids", loaded.eos()},
                            {"chat", loaded.has_chat()},
                            {"batch_invariant", llm.batch_invariant()},
                            {"defaults",
                             {{"temperature", defaults.temperature},
                              {"top_p", defaults.top_p},
                              {"top_k", defaults.top_k},
                              {"min_p", defaults.min_p},
                              {"repetition_penalty", defaults.repetition},
                              {"max_tokens", defaults.max_tokens}}}};
  return info.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace skiff::capi
