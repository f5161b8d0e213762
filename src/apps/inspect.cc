// `skiff inspect`: prints what a model is and how much memory it will take, from its small files
// alone.
#include <map>

#include "apps/commands.h"
#include "base/load_error.h"
#include "engine/backend.h"
#include "engine/resolve.h"
#include "model/memory_plan.h"

namespace skiff::apps {
namespace {

struct Describe {
  std::string operator()(const Gqa& m) const {
    return fmt::format("attention {} heads, {} kv heads, head size {}, rope theta {}{}{}{}",
                       m.heads, m.kv_heads, m.head_dim, m.rope.theta,
                       m.rope.interleaved ? " interleaved" : "", m.qk_norm ? ", q/k norm" : "",
                       m.window ? fmt::format(", window {}", m.window) : "");
  }
  std::string operator()(const Dense& f) const { return fmt::format("dense width {}", f.width); }
  std::string operator()(const Moe& f) const {
    return fmt::format("{} experts of width {}, {} chosen{}{}{}", f.router.experts, f.width,
                       f.router.top_k,
                       f.router.always ? fmt::format(", {} more always on", f.router.always) : "",
                       f.shared_width ? fmt::format(", shared width {}", f.shared_width) : "",
                       f.router.bias ? ", correction bias" : "");
  }
};

// Prints consecutive equal layers as one line: "layers 1-27: ...".
void print_layers(const ModelSpec& spec) {
  const auto text = [&](size_t i) {
    return fmt::format("{}; {}", std::visit(Describe{}, spec.layers[i].mixer),
                       std::visit(Describe{}, spec.layers[i].ffn));
  };
  for (size_t begin = 0; begin < spec.layers.size();) {
    const std::string line = text(begin);
    size_t end = begin + 1;
    while (end < spec.layers.size() && text(end) == line) ++end;
    fmt::print("layers {:<9} {}\n",
               end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1),
               line);
    begin = end;
  }
}

void print_text(const Args& args, const std::string& folder) {
  const auto tokenizer =
      text::load_tokenizer(args.given("tokenizer") ? args.text("tokenizer") : folder);
  if (tokenizer)
    fmt::print("tokenizer        {} tokens, bos {}, eos {}\n", (*tokenizer)->vocab_size(),
               (*tokenizer)->bos(), (*tokenizer)->eos());
  else
    fmt::print("tokenizer        none: {}\n", tokenizer.error().what);
  const auto chat = text::load_chat_template(folder);
  fmt::print("chat template    {}\n", chat ? "yes" : "none: " + chat.error().what);
}

}  // namespace

int run_inspect(const Args& args) {
  const std::string folder = model_folder(args);
  const engine::EngineConfig config = engine_config(args, folder);
  const model::ModelConfig model = model::read_model_config(folder, config.config_name);
  const ModelSpec& spec = model.spec;
  fmt::print("architecture     {}\n", spec.arch);
  fmt::print("parameters       {:.3f} billion\n",
             static_cast<double>(model::parameter_count(spec)) / 1e9);
  fmt::print("hidden size      {}\n", spec.hidden);
  fmt::print("vocabulary       {}{}\n", spec.vocab,
             spec.tied_head ? ", head tied to embedding" : "");
  fmt::print("context          {} tokens\n", spec.max_context);
  fmt::print("stored as        {}\n", model.dtype.empty() ? "not said" : model.dtype);
  print_layers(spec);
  std::string ends;
  for (Token id : model.generation.eos) ends += fmt::format("{}{}", ends.empty() ? "" : ", ", id);
  fmt::print("ends at tokens   {}\n", ends.empty() ? "none named" : ends);
  print_text(args, folder);
  const engine::Resolved resolved = engine::resolve(config, model);
  fmt::print(
      "\nMemory plan for --dtype {}, --max-model-len {}, --max-num-seqs {}, "
      "--max-num-batched-tokens {}\n",
      name(resolved.precision.act), resolved.limits.max_context, resolved.limits.max_seqs,
      resolved.limits.max_rows);
  std::fflush(stdout);
  fmt::print("{}", model::plan_memory(
                       spec, engine::memory_request(resolved, spec, *engine::make_ops(resolved)))
                       .table());
  return 0;
}

}  // namespace skiff::apps
