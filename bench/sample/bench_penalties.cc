// What penalties cost a draw: 128 sequences, 3,000 distinct tokens seen by each. Checks the drawn
// tokens against penalties computed here, then prints the microseconds of a step that the host
// works in the sampler and, on a device, those that the device draws, beside a draw without
// penalties.
//
//   bench_penalties host   the host's part alone: operations on logits do nothing
//   bench_penalties cpu    all of it on the CPU backend
//   bench_penalties cuda   on the first CUDA device
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ops/reference/reference_ops.h"
#include "sample/sampler.h"

namespace skiff::sample {
namespace {

constexpr int kSlots = 128, kVocab = 128256, kSeen = 3000;
constexpr int kWarm = 5, kRounds = 200, kHostRounds = 20;

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// Operations on logits do nothing, and draws are a pattern.
class HostPart : public reference::ReferenceOps {
 public:
  void edit_logits(Tensor, const EditPages&, const LogitEdits&) override {}
  void penalize(Tensor, const SeenTokens&, const skiff::Penalties&) override {}
  void count_tokens(const SeenTokens&, Tensor, Tensor, Tensor) override {}
  void sample(Tensor out_ids, Tensor, const SampleBatch&) override {
    for (int64_t r = 0; r < out_ids.rows(); ++r)
      out_ids.as<int32_t>()[r] = static_cast<int32_t>((r * 7919 + 613 * next_) % kVocab);
    ++next_;
  }

 private:
  int64_t next_ = 0;
};

struct Penalties {
  float repetition = 1, presence = 0, frequency = 0;
};
constexpr Penalties kAll{1.1f, 0.5f, 0.25f};

OpenSlot opening(int slot, int vocab, int seen, const Penalties& p, float temperature) {
  OpenSlot out{.slot = slot,
               .params = {.temperature = temperature,
                          .top_p = 0.95f,
                          .repetition = p.repetition,
                          .presence = p.presence,
                          .frequency = p.frequency},
               .history = {},
               .prompt_len = seen / 2};
  for (int i = 0; i < seen; ++i) out.history.push_back((slot * 577 + i * 41) % vocab);
  return out;
}

std::vector<DrawRow> all_slots(int slots) {
  std::vector<DrawRow> rows;
  for (int s = 0; s < slots; ++s) rows.push_back({.slot = s});
  return rows;
}

void fill(Ops& ops, Tensor logits, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(logits.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(12 * uniform_draw(seed, i) - 6);
  ops.copy(logits, host_tensor(values.data(), DType::kF32, {logits.rows(), logits.cols()}));
  ops.wait(ops.mark());
}

// The best token of a row of the same logits, by penalties computed from a map of counts.
Token best_of(uint64_t seed, int row, int vocab, const std::map<Token, int>& seen) {
  float best = -1e30f;
  Token out = 0;
  for (Token t = 0; t < vocab; ++t) {
    auto x = static_cast<float>(
        12 * uniform_draw(seed, static_cast<uint64_t>(row) * static_cast<uint64_t>(vocab) +
                                    static_cast<uint64_t>(t)) -
        6);
    if (const auto at = seen.find(t); at != seen.end()) {
      x = x > 0 ? x / kAll.repetition : x * kAll.repetition;
      if (at->second > 0) x += -(kAll.presence + kAll.frequency * static_cast<float>(at->second));
    }
    if (x > best) {
      best = x;
      out = t;
    }
  }
  return out;
}

void check(Ops& ops) {
  constexpr int kFew = 8, kSmall = 1000, kSteps = 30;
  Sampler sampler({kSmall, kFew}, ops);
  std::vector<std::map<Token, int>> seen(kFew);
  for (int s = 0; s < kFew; ++s) {
    const OpenSlot slot = opening(s, kSmall, 300, kAll, 0);
    for (int i = 0; i < 300; ++i)
      seen[static_cast<size_t>(s)][slot.history[static_cast<size_t>(i)]] += i >= slot.prompt_len;
    sampler.open(slot);
  }
  const Buffer memory(ops.device(), size_t{kFew} * kSmall * 4);
  const Tensor logits = memory.view(DType::kF32, {kFew, kSmall});
  for (int step = 0; step < kSteps; ++step) {
    const auto seed = static_cast<uint64_t>(step / 3);  // so that tokens are drawn again
    fill(ops, logits, seed);
    const SampleOutput out = sampler.sample(logits, all_slots(kFew));
    for (int s = 0; s < kFew; ++s) {
      const Token token = out.tokens[static_cast<size_t>(s)];
      SKIFF_CHECK_EQ(token, best_of(seed, s, kSmall, seen[static_cast<size_t>(s)]));
      ++seen[static_cast<size_t>(s)][token];
    }
  }
  fmt::print("checked: {} draws of {} sequences are the best token after penalties\n", kSteps,
             kFew);
}

struct Times {
  double host = 0, device = 0;
};

Times measure(Ops& ops, const Penalties& penalties) {
  const bool device = ops.device() != Device{};
  Sampler sampler({kVocab, kSlots}, ops);
  for (int s = 0; s < kSlots; ++s) sampler.open(opening(s, kVocab, kSeen, penalties, 0.8f));
  const Buffer memory(ops.device(), size_t{kSlots} * kVocab * 4);
  const Tensor logits = memory.view(DType::kF32, {kSlots, kVocab});
  fill(ops, logits, 5);
  // Copied before each draw, so that the device is still busy while the draw is launched.
  const size_t busy = device ? size_t{1} << 30 : 64;
  const Buffer from(ops.device(), busy), to(ops.device(), busy);
  const std::vector<DrawRow> rows = all_slots(kSlots);
  std::vector<double> host, on_device;
  const int rounds = ops.name() == "cpu" ? kHostRounds : kRounds;
  for (int i = 0; i < kWarm + rounds; ++i) {
    if (device) ops.copy(to.view(DType::kI32, {1 << 28}), from.view(DType::kI32, {1 << 28}));
    const uint64_t begin = ops.stamp();
    const auto start = Clock::now();
    const PendingDraw draw = sampler.start(logits, rows);
    const auto started = Clock::now();
    const uint64_t end = ops.stamp();
    ops.wait(ops.mark());
    const auto waited = Clock::now();
    sampler.finish(draw);
    if (i < kWarm) continue;
    host.push_back(microseconds(start, started) + microseconds(waited, Clock::now()));
    on_device.push_back(ops.seconds_between(begin, end) * 1e6);
  }
  const auto median = [](std::vector<double>& v) {
    std::ranges::nth_element(v, v.begin() + std::ssize(v) / 2);
    return v[v.size() / 2];
  };
  return {median(host), median(on_device)};
}

void run(Ops& ops, bool is_checked) {
  if (is_checked) check(ops);
  const Times plain = measure(ops, {});
  for (const auto& [name, p] : std::vector<std::pair<const char*, Penalties>>{
           {"repetition", {.repetition = 1.1f}},
           {"presence, frequency", {.presence = 0.5f, .frequency = 0.25f}},
           {"all three", kAll}}) {
    const Times t = measure(ops, p);
    fmt::print("{:<20} host {:>7.1f} us a step, {:>7.1f} more than without", name, t.host,
               t.host - plain.host);
    if (ops.device() != Device{})
      fmt::print("; device {:>7.1f} us, {:>6.1f} more", t.device, t.device - plain.device);
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace skiff::sample

int main(int argc, char** argv) {
  using namespace skiff;
  const std::string_view where = argc > 1 ? argv[1] : "host";
  if (where == "host") {
    sample::HostPart ops;
    sample::run(ops, false);
  } else {
    const std::unique_ptr<Ops> ops = where == "cuda" ? make_cuda_ops({}) : make_cpu_ops(0);
    sample::run(*ops, true);
  }
}
