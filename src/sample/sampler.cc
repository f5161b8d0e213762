#include "sample/sampler.h"

#include <algorithm>
#include <map>

#include "sample/rules.h"

namespace skiff {
namespace {

Tensor vector_tensor(std::vector<int32_t>& v) {
  return host_tensor(v.data(), DType::kI32, {static_cast<int64_t>(v.size())});
}
Tensor vector_tensor(std::vector<int64_t>& v) {
  return host_tensor(v.data(), DType::kI64, {static_cast<int64_t>(v.size())});
}
Tensor vector_tensor(std::vector<float>& v) {
  return host_tensor(v.data(), DType::kF32, {static_cast<int64_t>(v.size())});
}

// The columns of SampleBatch, filled row by row.
struct DrawColumns {
  std::vector<float> temperature, top_p, min_p;
  std::vector<int32_t> top_k;
  std::vector<int64_t> seed, draw;

  void push(const SlotState& slot) {
    const SamplingParams& params = slot.params();
    temperature.push_back(params.temperature);
    top_p.push_back(params.top_p);
    min_p.push_back(params.min_p);
    top_k.push_back(params.top_k);
    seed.push_back(static_cast<int64_t>(params.seed));
    draw.push_back(slot.output_count());
  }
  SampleBatch view() {
    return {.temperature = vector_tensor(temperature),
            .top_p = vector_tensor(top_p),
            .min_p = vector_tensor(min_p),
            .top_k = vector_tensor(top_k),
            .seed = vector_tensor(seed),
            .draw = vector_tensor(draw)};
  }
};

// Log-probabilities of `next` under `logits`, with the n best of each row.
std::vector<PositionLogprobs> look_up(Ops& ops, Tensor logits, std::vector<Token> next, int n) {
  const auto rows = static_cast<int64_t>(next.size());
  std::vector<float> chosen(next.size()), top_logprobs(next.size() * static_cast<size_t>(n));
  std::vector<int32_t> rank(next.size()), top_ids(top_logprobs.size());
  const Tensor ids = n ? host_tensor(top_ids.data(), DType::kI32, {rows, n}) : Tensor{};
  const Tensor values = n ? host_tensor(top_logprobs.data(), DType::kF32, {rows, n}) : Tensor{};
  ops.logprobs(vector_tensor(chosen), vector_tensor(rank), ids, values, logits,
               vector_tensor(next));
  std::vector<PositionLogprobs> out(next.size());
  size_t entry = 0;
  for (size_t r = 0; r < next.size(); ++r) {
    out[r] = {.chosen = {next[r], chosen[r]}, .rank = rank[r], .top = {}};
    out[r].top.reserve(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i, ++entry) {
      out[r].top.push_back({top_ids[entry], top_logprobs[entry]});
    }
  }
  return out;
}

}  // namespace

Sampler::Sampler(int vocab, int max_slots, Ops& ops)
    : vocab_(vocab), ops_(ops), slots_(static_cast<size_t>(max_slots)) {
  SKIFF_CHECK(ops.device().kind == Device::kCpu, "the sampler's tables are host memory");
}

void Sampler::open(const OpenSlot& slot) {
  const auto i = static_cast<size_t>(slot.slot);
  SKIFF_CHECK(slot.slot >= 0 && i < slots_.size(), "slot {} of {}", slot.slot, slots_.size());
  slots_[i].emplace(slot);
}

void Sampler::accept(int slot, std::span<const Token> tokens) {
  for (const Token token : tokens) state(slot).accept(token);
}

SlotState& Sampler::state(int slot) {
  const auto i = static_cast<size_t>(slot);
  SKIFF_CHECK(slot >= 0 && i < slots_.size() && slots_[i], "slot {} is not open", slot);
  return *slots_[i];
}

SampleOutput Sampler::sample(Tensor logits, std::span<const int> slots) {
  SKIFF_CHECK_EQ(logits.rows(), static_cast<int64_t>(slots.size()));
  SKIFF_CHECK_EQ(logits.cols(), vocab_);
  const std::vector<RawRows> raw = save_raw(logits, slots);
  edit(logits, slots);
  SampleOutput out{.tokens = draw(logits, slots), .logprobs = {}};
  out.logprobs.resize(slots.size());
  for (const RawRows& group : raw) report(group, out);
  for (size_t r = 0; r < slots.size(); ++r) state(slots[r]).accept(out.tokens[r]);
  return out;
}

std::vector<PositionLogprobs> Sampler::prompt_logprobs(Tensor logits, std::span<const Token> next,
                                                       int n) {
  SKIFF_CHECK_EQ(logits.rows(), static_cast<int64_t>(next.size()));
  SKIFF_CHECK_EQ(logits.cols(), vocab_);
  return look_up(ops_, logits, {next.begin(), next.end()}, clamp_top(n));
}

int Sampler::clamp_top(int n) const { return std::clamp(n, 0, vocab_); }

// The rules are about to edit the logits in place, while log-probabilities are of the raw ones
// and of a token not yet drawn: so the rows in question are copied, grouped by how many of the
// best are wanted, because Ops::logprobs takes one number for all its rows.
std::vector<Sampler::RawRows> Sampler::save_raw(Tensor logits, std::span<const int> slots) {
  std::map<int, std::vector<int32_t>> wanted;
  int64_t count = 0;
  for (size_t r = 0; r < slots.size(); ++r) {
    const int n = state(slots[r]).params().logprobs;
    if (n < 0) continue;
    wanted[clamp_top(n)].push_back(static_cast<int32_t>(r));
    ++count;
  }
  const size_t need = static_cast<size_t>(count * vocab_) * sizeof(float);
  if (raw_.size() < need) raw_ = Buffer(ops_.device(), need);
  std::vector<RawRows> groups;
  size_t offset = 0;
  for (auto& [top, rows] : wanted) {
    const auto n = static_cast<int64_t>(rows.size());
    const Tensor copy = raw_.view(DType::kF32, {n, vocab_}, offset);
    offset += static_cast<size_t>(n * vocab_) * sizeof(float);
    ops_.gather_rows(copy, logits, vector_tensor(rows));
    groups.push_back({.top = top, .rows = std::move(rows), .logits = copy});
  }
  return groups;
}

void Sampler::edit(Tensor logits, std::span<const int> slots) {
  EditList edits(vocab_);
  for (const int slot : slots) {
    for (const Rule& rule : rules()) rule.apply(state(slot), edits);
    edits.end_row();
  }
  if (!edits.empty()) ops_.edit_logits(logits, edits.view());
}

std::vector<Token> Sampler::draw(Tensor logits, std::span<const int> slots) {
  DrawColumns columns;
  for (const int slot : slots) columns.push(state(slot));
  std::vector<Token> tokens(slots.size());
  ops_.sample(vector_tensor(tokens), logits, columns.view());
  return tokens;
}

void Sampler::report(const RawRows& group, SampleOutput& out) {
  std::vector<Token> chosen;
  for (const int32_t r : group.rows) chosen.push_back(out.tokens[static_cast<size_t>(r)]);
  std::vector<PositionLogprobs> found = look_up(ops_, group.logits, std::move(chosen), group.top);
  for (size_t i = 0; i < found.size(); ++i) {
    out.logprobs[static_cast<size_t>(group.rows[i])] = std::move(found[i]);
  }
}

}  // namespace skiff
