#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/rehearsal.h"
#include "engine/zeroed.h"

namespace skiff::engine {
namespace {

sched::Limits pass_limits(const sched::Limits& limits) {
  return {.max_seqs = limits.max_seqs,
          .max_rows = limits.max_rows + ModelDrafter::more_rows(limits),
          .max_context = limits.max_context,
          .max_logit_rows = limits.max_seqs};
}

StepBounds bounds_of(const ModelSpec& spec, const ModelDrafter::Options& options) {
  const sched::Limits limits = pass_limits(options.limits);
  return {.spec = spec,
          .act = options.act,
          .max_rows = limits.max_rows,
          .max_logit_rows = limits.max_logit_rows,
          .max_seqs = limits.max_seqs,
          .max_context = limits.max_context,
          .formats = options.formats};
}

size_t arena_bytes(const ModelSpec& spec, const ModelDrafter::Options& options, const Ops& ops) {
  const sched::Limits limits = pass_limits(options.limits);
  return model::Decoder::arena_bytes(spec, options.act, limits.max_rows, limits.max_logit_rows,
                                     ops);
}

size_t hidden_bytes(const ModelSpec& spec, DType act, int rows) {
  return spec.joins ? byte_size(act, int64_t{rows} * spec.hidden) : 0;
}

bool combines(const ModelSpec& spec) { return spec.joins && spec.join == ModelSpec::kBeside; }

// How many rows all slots together may lag behind.
int32_t capacity_of(const ModelSpec& spec, const sched::Limits& limits) {
  return spec.joins ? limits.max_seqs * ModelDrafter::kLag : 0;
}

size_t draft_probs_bytes(const ModelSpec& spec, const ModelDrafter::Options& options) {
  const int64_t rows = int64_t{options.limits.max_seqs} * options.tokens;
  return options.sampled ? byte_size(DType::kF32, rows * spec.vocab) : 0;
}

// Chained passes are made where ModelDrafter::chains() says that they can be.
size_t chain_bytes(const ModelSpec& spec, const ModelDrafter::Options& options, int block_size,
                   const Ops& ops) {
  if (!options.vocabulary.empty() || options.sampled) return 0;
  return ChainedPasses::memory_bytes({.limits = options.limits,
                                      .joins = spec.joins,
                                      .tokens = options.tokens,
                                      .page_size = block_size,
                                      .captures = {}},
                                     ops);
}

// Drafts are drawn apart from the tokens that they guess: a verdict compares both distributions.
constexpr uint64_t kDraftSeed = 0x64726166745f7365;

// All columns of a greedy draw are zeros.
constexpr size_t kGreedyBytes = 4 * sizeof(int32_t) + 2 * sizeof(int64_t);

SampleBatch greedy_draws(const Buffer& memory, int64_t rows, Ops& ops) {
  zeroed(memory, ops);
  size_t at = 0;
  const auto column = [&](DType dtype) {
    const Tensor out = memory.view(dtype, {rows}, at);
    at += byte_size(dtype, rows);
    return out;
  };
  const Tensor seed = column(DType::kI64), draw = column(DType::kI64);
  return {.temperature = column(DType::kF32),
          .top_p = column(DType::kF32),
          .min_p = column(DType::kF32),
          .top_k = column(DType::kI32),
          .seed = seed,
          .draw = draw};
}

// Returns the text of the span's sequence, or null if nothing is drafted for it.
template <class Slots>
auto* text_in(Slots& slots, const Span& span) {
  const auto slot = static_cast<size_t>(span.slot);
  return slot < slots.size() && slots[slot] ? &*slots[slot] : nullptr;
}

}  // namespace

ModelDrafter::ModelDrafter(const model::LoadedModel& model, Ops& ops, comm::Mesh& mesh,
                           std::span<const KvLayer> kv, const Options& options)
    : spec_(model.spec),
      ops_(ops),
      kv_(kv),
      act_(options.act),
      tokens_(options.tokens),
      max_rows_(pass_limits(options.limits).max_rows),
      max_context_(std::min(options.limits.max_context, model.spec.max_context)),
      limits_(options.limits),
      captures_(options.captures),
      arena_(Buffer(ops.device(), arena_bytes(model.spec, options, ops))),
      decoder_(model.spec, model.weights, ops, mesh, options.act),
      builder_(pass_limits(options.limits), kv.front().page_size,
               {.sizes = options.captures, .drafts = options.tokens, .ragged = true}, ops),
      greedy_memory_(ops.device(), static_cast<size_t>(options.limits.max_seqs) * kGreedyBytes),
      ids_memory_(ops.device(), static_cast<size_t>(options.limits.max_seqs) * sizeof(Token)),
      joined_(ops.device(), hidden_bytes(model.spec, act_, max_rows_)),
      carried_(ops.device(), hidden_bytes(model.spec, act_, options.limits.max_seqs)),
      combined_(ops.device(),
                combines(spec_) ? hidden_bytes(spec_, act_, options.limits.max_rows) : 0),
      vocabulary_(options.vocabulary),
      kept_(act_, spec_.hidden, capacity_of(spec_, options.limits), ops),
      greedy_(greedy_draws(greedy_memory_, options.limits.max_seqs, ops)),
      draft_probs_memory_(ops.device(), draft_probs_bytes(spec_, options)) {
  if (options.sampled) {
    SKIFF_CHECK(vocabulary_.empty());
    draft_probs_ = draft_probs_memory_.view(
        DType::kF32, {int64_t{options.limits.max_seqs} * tokens_, spec_.vocab});
  }
  SKIFF_CHECK(tokens_ >= 1, "{} drafts", tokens_);
  ops.reserve(bounds_of(spec_, options));
}

size_t ModelDrafter::memory_bytes(const ModelSpec& spec, const Options& options, int block_size,
                                  const Ops& ops) {
  const sched::Limits limits = pass_limits(options.limits);
  const auto seqs = static_cast<size_t>(limits.max_seqs);
  return arena_bytes(spec, options, ops) + ops.scratch_bytes(bounds_of(spec, options)) +
         BatchBuilder::memory_bytes(limits, block_size, ops.device()) +
         seqs * (kGreedyBytes + sizeof(Token)) + draft_probs_bytes(spec, options) +
         chain_bytes(spec, options, block_size, ops) +
         KeptRows::memory_bytes(options.act, spec.hidden, capacity_of(spec, options.limits)) +
         hidden_bytes(
             spec, options.act,
             limits.max_rows + limits.max_seqs + (combines(spec) ? options.limits.max_rows : 0));
}

void ModelDrafter::rehearse(const StepPlan& plan, Tensor hidden) {
  Pass pass{.plan = plan, .of = {}, .rows = {}};
  pass.plan.chained = false;
  for (Span& span : pass.plan.spans) span.draft = 0;
  if (spec_.joins) pass.rows.assign(plan.tokens.size(), 0);
  const Tensor any = spec_.joins ? carried_.view(act_, {1, spec_.hidden}) : Tensor{};
  const Tensor joined = build(pass, any);
  engine::rehearse(ops_, [&] {
    if (combines(spec_) && hidden.rows() > 0) combined(plan, hidden);
    arena_.reset();
    decoder_.forward(frame_.batch, kv_, arena_, joined);
  });
  end_pass();
}

// Each kind of pass is computed twice: the second time it is recorded.
void ModelDrafter::record() {
  const Tensor any = spec_.joins ? carried_.view(act_, {1, spec_.hidden}) : Tensor{};
  for (const int rows : {1, 1 + tokens_}) {
    for (const int size : builder_.recorded_sizes(rows)) {
      const Pass pass = blank_pass(size, rows);
      for (int i = 0; i < 2; ++i) {
        forward(build(pass, any));
        end_pass();
      }
    }
  }
}

// All sequences use the same blocks, whose contents do not matter.
ModelDrafter::Pass ModelDrafter::blank_pass(int seqs, int rows) const {
  Pass pass;
  for (int s = 0; s < seqs; ++s) {
    pass.plan.spans.push_back(
        {.seq = static_cast<SeqId>(s), .slot = s, .count = rows, .sample = true});
    for (int page = 0; page * kv_.front().page_size < rows; ++page) pass.plan.pages.push_back(page);
    pass.plan.page_start.push_back(static_cast<int32_t>(pass.plan.pages.size()));
  }
  pass.plan.tokens.assign(static_cast<size_t>(seqs) * static_cast<size_t>(rows), 0);
  if (spec_.joins) pass.rows.assign(pass.plan.tokens.size(), 0);
  return pass;
}

void ModelDrafter::open(const OpenSlot& slot) {
  const auto i = static_cast<size_t>(slot.slot);
  if (slots_.size() <= i) slots_.resize(i + 1);
  slots_[i].reset();
  if (slot.pooling) return;
  slots_[i] = Text{.tokens = slot.history};
  const SamplingParams& params = slot.params;
  slots_[i]->draw = {.temperature = params.temperature,
                     .top_p = params.top_p,
                     .min_p = params.min_p,
                     .top_k = params.top_k,
                     .seed = params.seed ^ kDraftSeed};
}

// Returns the text of the span's sequence with what it has gained, or null if nothing is drafted
// for it.
ModelDrafter::Text* ModelDrafter::continued(const Span& span, const std::vector<Token>& gained,
                                            bool kept) {
  const auto slot = static_cast<size_t>(span.slot);
  if (text_in(slots_, span) == nullptr) return nullptr;
  Text& text = *slots_[slot];
  const auto known = static_cast<int>(text.tokens.size()), end = span.begin + span.count;
  if (text.computed < 0) text.computed = text.seen = span.begin;  // the prefix came from the cache
  const bool others = span.sample ? known != end - span.draft : known <= end;
  if (others || (spec_.joins && !kept && text.seen != span.begin)) {
    slots_[slot].reset();
    return nullptr;
  }
  text.tokens.insert(text.tokens.end(), gained.begin(), gained.end());
  if (span.sample) text.unchecked = span.draft > 0 ? 0 : text.unchecked + 1;
  for (const Token draft : text.ahead) {
    if (spec_.joins) break;
    const auto at = static_cast<size_t>(text.computed);
    if (at >= text.tokens.size() || text.tokens[at] != draft) break;
    ++text.computed;
  }
  text.ahead.clear();
  return &text;
}

int ModelDrafter::end_of_pages(const StepPlan& plan, size_t i) const {
  const int pages = plan.page_start[i + 1] - plan.page_start[i];
  return static_cast<int>(std::min<int64_t>(int64_t{pages} * kv_.front().page_size, max_context_));
}

void ModelDrafter::Pass::add(const StepPlan& step, size_t i, int begin,
                             std::span<const Token> tokens, bool sample) {
  const Span& span = step.spans[i];
  plan.spans.push_back({.seq = span.seq,
                        .slot = span.slot,
                        .begin = begin,
                        .count = static_cast<int>(tokens.size()),
                        .sample = sample,
                        .draft_logprobs = sample ? span.draft_logprobs : kNoLogprobs});
  plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
  plan.pages.insert(plan.pages.end(), step.pages.begin() + step.page_start[i],
                    step.pages.begin() + step.page_start[i + 1]);
  plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
  of.push_back(i);
}

ModelDrafter::Place ModelDrafter::place_of(const StepPlan& plan, size_t i, int row,
                                           const Text& text, int gained) const {
  const Span& span = plan.spans[i];
  const int right = span.sample ? span.count - span.draft + gained - 1 : span.count;
  const bool patient = text.unchecked <= kPatience || text.unchecked % kPatience == 0 ||
                       span.draft_logprobs != kNoLogprobs;
  return {.plan = plan,
          .span = i,
          .row = row,
          .end = std::min(span.begin + right, end_of_pages(plan, i)),
          .wanted = plan.drafts && span.sample && patient};
}

// Returns whether the step has completed a block that the drafter has not.
bool ModelDrafter::ends_block(const Place& at, const Text& text) const {
  const auto page = static_cast<int>(kv_.front().page_size);
  return at.end / page > text.computed / page;
}

// Adds the rows from text.computed to `end`, or as many as the pass has room for. A module takes
// each with the token behind it; its hidden rows are those that were kept, if there are any, else
// the step's.
void ModelDrafter::add_rows(const Place& at, Text& text, int end, Pass& pass) const {
  const int begin = text.computed, first = begin + (spec_.joins ? 1 : 0);
  end = std::min(end, begin + max_rows_ - static_cast<int>(pass.plan.tokens.size()));
  if (begin >= end) return;
  const auto tokens =
      std::span(text.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(end - begin));
  const auto known = std::ssize(text.tokens);
  pass.add(at.plan, at.span, begin, tokens, at.wanted && first + std::ssize(tokens) == known);
  text.computed = end;
  if (!spec_.joins) return;
  if (!text.kept.empty()) {
    const auto last = text.kept.begin() + (end - begin);
    pass.rows.insert(pass.rows.end(), text.kept.begin(), last);
    text.kept.erase(text.kept.begin(), last);
    return;
  }
  const int row = at.row + begin - at.plan.spans[at.span].begin;
  for (int i = 0; i < end - begin; ++i) pass.rows.push_back(row + i);
}

// Adds rows behind which nothing is drafted. A pass that is full is computed at once.
void ModelDrafter::fill_rows(const Place& at, Text& text, int end, Tensor hidden, Pass& pass) {
  while (text.computed < end) {
    add_rows(at, text, end, pass);
    if (text.computed < end) fill(pass, hidden);
  }
}

// A model takes the tokens that it has not seen. The last one is computed again where a draft was
// it: its logits are wanted.
void ModelDrafter::follow(const Place& at, Text& text, Passes& passes) {
  const auto known = static_cast<int>(text.tokens.size());
  const int last = std::min(known, end_of_pages(at.plan, at.span));
  if (at.wanted) {
    if (last - text.computed > kLag) fill_rows(at, text, last - 1, {}, passes.filled);
    text.computed = std::min(text.computed, known - 1);
    add_rows(at, text, last, passes.drafted);
  } else if (ends_block(at, text)) {
    fill_rows(at, text, at.end, {}, passes.filled);
  }
}

// Returns whether the module keeps the span's hidden rows for later.
bool ModelDrafter::stays_behind(const Place& at, const Text& text) const {
  return spec_.joins && !at.wanted && at.end - text.computed <= kLag;
}

// Returns whether a module takes kept rows of the sequence behind the step.
bool ModelDrafter::catches_up(const Place& at, const Text& text) const {
  return !text.kept.empty() &&
         (at.wanted || at.end - text.computed >= kLag || ends_block(at, text));
}

// A module takes each row that the step has computed: drafts wrote what they guessed from hidden
// rows of the module's own. `hidden` has the step's rows, or is empty; those that stay behind are
// kept already.
void ModelDrafter::follow_as_module(const Place& at, Text& text, Tensor hidden, Passes& passes) {
  if (hidden.rows() == 0 || stays_behind(at, text)) {
    if (at.end - text.computed >= passes.lag || ends_block(at, text))
      catch_up(at, text, passes.kept);
    return;
  }
  const int begin = at.plan.spans[at.span].begin;
  catch_up(at, text, passes.kept);
  if (!at.wanted || at.end - begin > kLag)
    fill_rows(at, text, at.wanted ? at.end - 1 : at.end, hidden, passes.filled);
  if (at.wanted) add_rows(at, text, at.end, passes.drafted);
  text.seen = text.computed;
}

// Keeps the hidden rows of spans that stay behind.
void ModelDrafter::keep_rows(std::span<const Followed> behind, Tensor hidden) {
  std::vector<int32_t> from;
  for (const auto& [text, at] : behind)
    for (int i = 0; i < at.end - at.plan.spans[at.span].begin; ++i) from.push_back(at.row + i);
  if (from.empty()) return;
  std::vector<std::vector<int32_t>*> needed;
  for (std::optional<Text>& text : slots_)
    if (text) needed.push_back(&text->kept);
  int32_t to = kept_.append(from, hidden, needed);
  for (const auto& [text, at] : behind) {
    for (int i = at.plan.spans[at.span].begin; i < at.end; ++i) text.kept.push_back(to++);
    text.seen = std::max(text.seen, at.end);
  }
}

// Takes the kept rows up to the end of the step: those of the next one may be among them.
void ModelDrafter::catch_up(const Place& at, Text& text, Pass& pass) {
  const int end = text.computed + static_cast<int>(text.kept.size());
  fill_rows(at, text, std::min(at.end, end), kept_.rows(), pass);
}

// At most kLag rows of each text, and those of one step more, are kept: draft() lets a text that
// has kLag of them catch up.
bool ModelDrafter::can_wait(const StepPlan& plan) const {
  if (plan.drafts) return false;
  if (!spec_.joins) return true;
  return plan.opened.empty() && std::ranges::all_of(plan.spans, [this](const Span& span) {
           const Text* text = text_in(slots_, span);
           return text == nullptr || (span.draft == 0 && text->computed >= 0 &&
                                      span.begin + span.count - text->computed <= kLag + 1);
         });
}

void ModelDrafter::keep(const StepPlan& plan, Tensor hidden) {
  if (!spec_.joins) return;
  if (combines(spec_)) hidden = combined(plan, hidden);
  std::vector<Followed> behind;
  int row = 0;
  for (size_t i = 0; i < plan.spans.size(); row += plan.spans[i++].count) {
    const Span& span = plan.spans[i];
    Text* text = text_in(slots_, span);
    if (text == nullptr) continue;
    if (text->seen == span.begin)
      behind.push_back({*text, place_of(plan, i, row, *text, /*gained=*/1)});
    else
      slots_[static_cast<size_t>(span.slot)].reset();
  }
  keep_rows(behind, hidden);
}

void ModelDrafter::draft(const StepPlan& plan, Tensor hidden, StepResult& result) {
  for (const OpenSlot& slot : plan.opened) open(slot);
  const bool kept = hidden.rows() == 0;
  std::vector<Followed> followed, behind;
  int row = 0;
  for (size_t i = 0; i < plan.spans.size(); row += plan.spans[i++].count) {
    Text* text = continued(plan.spans[i], result.tokens[i], kept);
    if (text == nullptr) continue;
    if (!plan.drafts) text->unchecked = 0;
    const auto gained = static_cast<int>(result.tokens[i].size());
    followed.push_back({*text, place_of(plan, i, row, *text, gained)});
    if (!kept && stays_behind(followed.back().at, *text)) behind.push_back(followed.back());
  }
  if (combines(spec_) && !kept) hidden = combined(plan, hidden);
  keep_rows(behind, hidden);
  Passes passes;
  if (std::ranges::any_of(followed, [this](const Followed& f) { return catches_up(f.at, f.text); }))
    passes.lag = kLag / 2;
  for (const auto& [text, at] : followed) {
    if (spec_.joins)
      follow_as_module(at, text, hidden, passes);
    else
      follow(at, text, passes);
  }
  fill(passes.kept, kept_.rows());
  fill(passes.filled, hidden);
  draft(plan, std::move(passes.drafted), hidden, result);
}

// Returns the hidden rows of a step.
Tensor ModelDrafter::combined(const StepPlan& plan, Tensor taps) {
  const auto rows = std::ssize(plan.tokens);
  const Tensor out = combined_.view(act_, {rows, spec_.hidden});
  decoder_.combine(out, taps.row_range(0, rows));
  return out;
}

// Drafts behind the rows of `pass`, then behind each draft.
void ModelDrafter::draft(const StepPlan& plan, Pass pass, Tensor hidden, StepResult& result) {
  if (plan.reports_drafts()) result.draft_logprobs.resize(plan.spans.size());
  for (int depth = 0; depth < tokens_ && !pass.of.empty(); ++depth) {
    auto [drafts, logprobs] = compute(pass, depth, hidden);
    for (size_t s = 0, d = 0; s < pass.of.size(); ++s) {
      if (!pass.plan.spans[s].sample) continue;
      const size_t of = pass.of[s];
      result.drafts[of].push_back(drafts[d]);
      if (logprobs[d]) result.draft_logprobs[of].push_back(std::move(*logprobs[d]));
      ++d;
    }
    if (depth + 1 == tokens_) break;
    pass = next_pass(plan, pass, drafts);
    hidden = carried_.size() > 0 ? carried_.view(act_, {std::ssize(drafts), spec_.hidden}) : hidden;
  }
}

// Returns a pass over the last draft of each sequence, where there is a page for it.
ModelDrafter::Pass ModelDrafter::next_pass(const StepPlan& plan, const Pass& last,
                                           const std::vector<Token>& drafts) {
  Pass pass;
  int32_t d = 0;
  for (size_t s = 0; s < last.of.size(); ++s) {
    const Span& span = last.plan.spans[s];
    if (!span.sample) continue;
    const int at = span.begin + span.count;
    const std::span<const Token> token(&drafts[static_cast<size_t>(d)], 1);
    if (at < end_of_pages(plan, last.of[s])) {
      pass.add(plan, last.of[s], at, token, /*sample=*/true);
      if (spec_.joins) pass.rows.push_back(d);
      slots_[static_cast<size_t>(span.slot)]->ahead.push_back(token[0]);
    }
    ++d;
  }
  return pass;
}

// Brings the hidden row of each row of the pass, which is built, into one tensor. Rows of padding
// keep what they have.
Tensor ModelDrafter::join_rows(const Pass& pass, Tensor hidden) {
  if (!spec_.joins) return {};
  const auto n = std::ssize(pass.rows);
  const Tensor rows = lists_.take(DType::kI32, {n});
  const Tensor out = joined_.view(act_, {frame_.batch.num_tokens, spec_.hidden});
  std::ranges::copy(pass.rows, rows.as<int32_t>());
  ops_.gather_rows(out.row_range(0, n), hidden, rows);
  return out;
}

// Begins a pass; returns its joined rows. The last one has ended.
Tensor ModelDrafter::build(const Pass& pass, Tensor hidden) {
  if (pass_) ops_.wait(*pass_);
  lists_.reset();
  builder_.build(pass.plan, nullptr, frame_);
  const Tensor joined = join_rows(pass, hidden);
  ops_.begin_step(frame_.batch, frame_.arrivals);
  arena_.reset();
  return joined;
}

// Computes the pass that was built.
model::Forward ModelDrafter::forward(Tensor joined) {
  return recorded_.replay(ops_, frame_.key, [&] {
    arena_.reset();
    return decoder_.forward(frame_.batch, kv_, arena_, joined);
  });
}

void ModelDrafter::end_pass() {
  ++num_passes_;
  pass_ = ops_.mark();
  builder_.done_with(*pass_);
}

// Computes a pass of which only keys and values are wanted, and clears it.
void ModelDrafter::fill(Pass& pass, Tensor hidden) {
  if (pass.of.empty()) return;
  const Tensor joined = build(pass, hidden);
  decoder_.fill(frame_.batch, kv_, arena_, joined);
  end_pass();
  pass = {};
}

}  // namespace skiff::engine
