// `skiff inspect`: prints what a model is and how much memory it will take, from its small files
// alone.
#include <algorithm>
#include <limits>

#include "apps/commands.h"
#include "base/load_error.h"
#include "engine/backend.h"
#include "engine/rank.h"
#include "engine/resolve.h"
#include "model/memory_plan.h"
#include "model/slots.h"
#include "ops/kv_quant.h"

namespace skiff::apps {
namespace {

struct Describe {
  std::string operator()(const Gqa& m) const {
    return fmt::format("attention {} heads, {} kv heads, head size {}, rope theta {}{}{}{}",
                       m.heads, m.kv_heads, m.head_dim, m.rope.theta,
                       m.rope.interleaved ? " interleaved" : "", m.qk_norm ? ", q/k norm" : "",
                       m.window ? fmt::format(", window {}", m.window) : "");
  }
  std::string operator()(const Mla& m) const {
    return fmt::format("latent attention {} heads of {} + {} and {}, kv rank {}{}, rope theta {}{}",
                       m.heads, m.nope_dim, m.rope_dim, m.v_dim, m.kv_rank,
                       m.q_rank ? fmt::format(", q rank {}", m.q_rank) : "", m.rope.theta,
                       m.rope.interleaved ? " interleaved" : "");
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

// The rank whose memory is shown: the first, of the first replica.
model::RankOf first_part(const engine::Resolved& resolved) {
  return {.size = resolved.ranks, .sharers = resolved.sharers};
}

// Whose memory that is, if not everybody's.
std::string each_of(const engine::Resolved& resolved) {
  std::string whose;
  if (resolved.ranks > 1) whose = fmt::format("each of {} ranks", resolved.ranks);
  if (resolved.sharers > 1)
    whose += fmt::format("{}each of {} replicas", whose.empty() ? "" : " of ", resolved.sharers);
  return whose;
}

struct FormatNeed {
  size_t weights = 0, total = 0;
  bool computable = true;
};

// What a rank of the model needs in the formats of `schemes` for `tokens` tokens of cache.
FormatNeed need_of(engine::Resolved resolved, const model::SchemeChoice& schemes,
                   const ModelSpec& whole, const Ops& ops, int tokens) {
  const ModelSpec spec = *model::spec_of(whole, first_part(resolved));
  resolved.schemes = schemes;
  const auto everywhere = make_reference_ops();
  const bool computable =
      std::ranges::all_of(engine::quantized_formats(resolved, spec, *everywhere),
                          [&](const WeightFormat& format) { return ops.multiplies(format); });
  model::MemoryRequest request =
      engine::memory_request(resolved, spec, computable ? ops : *everywhere);
  request.max_model_len = tokens;
  request.num_blocks_override = (tokens + request.block_size - 1) / request.block_size;
  request.host_slots = 0;
  request.available = std::numeric_limits<size_t>::max();
  const model::MemoryPlan plan = model::plan_memory(spec, request);
  return {plan.weights, plan.total(), computable};
}

// Prints what each format of weights would need here.
void print_formats(const engine::EngineConfig& config, const engine::Resolved& resolved,
                   const ModelSpec& spec, const Ops& ops) {
  constexpr int kTokens = 16384;
  constexpr double kGiB = 1 << 30;
  const int tokens = spec.max_context > 0 ? std::min(kTokens, spec.max_context) : kTokens;
  const size_t available = engine::memory_request(resolved, spec, ops).available;
  const std::string whose = each_of(resolved);
  fmt::print("\nWith {}room for {} tokens of cache{}{}\n",
             resolved.stored.empty() ? "--quantization, and " : "", tokens,
             whose.empty() ? "" : ", ", whose);
  fmt::print("  {:<16}{:>12}{:>12}\n", "format", "weights", "in all");
  const auto row = [&](std::string_view name, const model::SchemeChoice& schemes,
                       const ModelSpec& spec) {
    const FormatNeed need = need_of(resolved, schemes, spec, ops, tokens);
    const std::string_view note = !need.computable          ? "  not computed on this device"
                                  : need.total <= available ? "  fits"
                                                            : "  does not fit";
    fmt::print("  {:<16}{:>8.3f} GiB{:>8.3f} GiB{}\n", name,
               static_cast<double>(need.weights) / kGiB, static_cast<double>(need.total) / kGiB,
               note);
  };
  if (!resolved.stored.empty()) {
    row("as stored", {}, spec);
    if (resolved.schemes.any()) row("as asked", resolved.schemes, spec);
    return;
  }
  row(name(resolved.precision.act), {}, spec);
  for (const model::Scheme& scheme : model::schemes()) {
    engine::EngineConfig other = config;  // shared experts may be apart in this scheme
    other.quantization = scheme.name;
    other.quantization_config.clear();
    row(scheme.name, model::choose_schemes(scheme.name, "", spec), engine::read_model(other).spec);
  }
}

// Prints in which formats the weights of a quantized checkpoint are multiplied, and which of its
// own are not.
void print_stored(const engine::Resolved& resolved, const ModelSpec& spec, const Ops& ops) {
  if (resolved.stored.empty()) return;
  const std::vector<model::Kept> kept = model::kept_slots(
      model::slots_of(spec, resolved.ranks), resolved.precision, resolved.schemes, resolved.stored,
      [&](const WeightFormat& format) { return ops.multiplies(format); });
  for (const WeightFormat& format : model::quantized_formats(kept))
    fmt::print("multiplied as    {}: {} weights\n", describe(format),
               std::ranges::count_if(kept, [&](const auto& k) { return k.format == format; }));
  for (const std::string& line : model::widened_formats(kept, resolved.stored))
    fmt::print("widened          {}, which the {} backend does not multiply\n", line, ops.name());
}

}  // namespace

int run_inspect(const Args& args) {
  const std::string folder = model_folder(args);
  const engine::EngineConfig config = engine_config(args, folder);
  const model::ModelConfig model = engine::read_model(config);
  const ModelSpec& spec = model.spec;
  fmt::print("architecture     {}\n", spec.arch);
  fmt::print("parameters       {:.3f} billion\n",
             static_cast<double>(model::parameter_count(spec)) / 1e9);
  fmt::print("hidden size      {}\n", spec.hidden);
  fmt::print("vocabulary       {}{}\n", spec.vocab,
             spec.tied_head ? ", head tied to embedding" : "");
  fmt::print("context          {} tokens\n", spec.max_context);
  fmt::print("stored as        {}\n",
             !model.quantization.method.empty()
                 ? fmt::format("{}: {}", model.quantization.method, model.quantization.about)
             : model.dtype.empty() ? "not said"
                                   : model.dtype);
  print_layers(spec);
  std::string ends;
  for (Token id : model.generation.eos) ends += fmt::format("{}{}", ends.empty() ? "" : ", ", id);
  fmt::print("ends at tokens   {}\n", ends.empty() ? "none named" : ends);
  print_text(args, folder);
  const engine::Resolved all = engine::resolve(config, model);
  const engine::Resolved resolved = engine::settings_of_rank(all, model, first_part(all));
  const ModelSpec local = *model::spec_of(spec, first_part(all));
  const auto ops = engine::make_ops(resolved);
  print_stored(resolved, local, *ops);
  print_formats(config, resolved, spec, *ops);
  const std::string whose = each_of(all);
  fmt::print(
      "\nMemory plan{}{} for --dtype {}, --kv-cache-dtype {}, --max-model-len {}, --max-num-seqs "
      "{}, "
      "--max-num-batched-tokens {}\n",
      whose.empty() ? "" : " of ", whose, name(resolved.precision.act),
      describe(resolved.precision.kv), resolved.limits.max_context, resolved.limits.max_seqs,
      resolved.limits.max_rows);
  if (resolved.schemes.any()) fmt::print("  quantized: {}\n", resolved.schemes.describe());
  if (resolved.drafter && resolved.drafter->schemes.any())
    fmt::print("  drafter quantized: {}\n", resolved.drafter->schemes.describe());
  std::fflush(stdout);
  fmt::print("{}",
             model::plan_memory(local, engine::memory_request(resolved, local, *ops)).table());
  return 0;
}

}  // namespace skiff::apps
