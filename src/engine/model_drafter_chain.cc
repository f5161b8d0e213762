// ModelDrafter behind steps that are chained; model_drafter.cc has the rest.
#include "engine/model_drafter.h"

namespace skiff::engine {

void ModelDrafter::begin_chain(const SlotTokens& slots) {
  SKIFF_CHECK(chains() && !chained_);
  chained_.emplace(
      ChainedPasses::Parts{
          .ops = ops_,
          .decoder = decoder_,
          .kv = kv_,
          .arena = arena_,
          .joined = spec_.joins ? joined_.view(act_, {max_rows_, spec_.hidden}) : Tensor{},
          .combined = spec_.join == ModelSpec::kBeside
                          ? combined_.view(act_, {limits_.max_rows, spec_.hidden})
                          : Tensor{},
          .greedy = greedy_},
      ChainedPasses::Options{.limits = limits_,
                             .joins = spec_.joins,
                             .tokens = tokens_,
                             .page_size = kv_.front().page_size,
                             .captures = captures_},
      slots);
}

void ModelDrafter::chain(const ChainedPasses::Step& step) {
  chained_->launch(step);
  num_passes_ += chained_->passes();
}

// The passes behind the step have taken all its right rows, and those of a model the token behind
// them.
void ModelDrafter::read_chained(const StepPlan& plan, const StepResult& result) {
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const Span& span = plan.spans[i];
    std::optional<Text>& text = slots_.at(static_cast<size_t>(span.slot));
    const std::vector<Token>& gained = result.tokens[i];
    const int ahead = spec_.joins ? 0 : 1;
    SKIFF_CHECK(text && text->kept.empty() && text->computed == span.begin + ahead &&
                    text->tokens.size() == static_cast<size_t>(span.begin) + 1,
                "slot {} lags behind a chained step", span.slot);
    text->tokens.insert(text->tokens.end(), gained.begin(), gained.end());
    text->computed = text->seen = span.begin + ahead + static_cast<int>(gained.size());
    text->ahead.clear();
    text->unchecked = 0;
  }
}

}  // namespace skiff::engine
