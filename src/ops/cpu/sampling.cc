#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/backend.h"
#include "ops/cpu/logits.h"

namespace skiff::cpu {
namespace {

constexpr double kHuge = std::numeric_limits<double>::infinity();

int32_t first_of(const Logits& x, float best) {
  if (best == kNever) return 0;
  return static_cast<int32_t>(std::find(x.x, x.x + x.n, best) - x.x);
}

// Returns the sum of exp((x - best) / temperature) over the logits that are at least `least`.
double total_weight(const Kernels& k, const Logits& x, float best, double temperature,
                    double least = kNever) {
  constexpr int64_t kStep = 256;
  float e[kStep];
  double total = 0;
  for (int64_t i = 0; i < x.n; i += kStep) {
    const int64_t n = std::min(kStep, x.n - i);
    k.exp(e, x.x + i, best, static_cast<float>(1 / temperature), n);
    for (int64_t j = 0; j < n; ++j) total += e[j] > 0 && x.x[i + j] >= least ? e[j] : 0;
  }
  return total;
}

// Collects the ids of tokens whose logits are at most `reach` below the best, in rising order.
void gather(const Logits& x, float best, double reach, std::vector<int32_t>& ids) {
  ids.clear();
  for (int64_t i = 0; i < x.n; ++i)
    if (x.x[i] >= best - reach) ids.push_back(static_cast<int32_t>(i));
}

// Distances below the best logit, in units of the temperature, that are tried in turn until they
// contain enough tokens.
constexpr double kReaches[] = {2, 6, 15, kHuge};

// Kept tokens are a prefix of the order by falling logit, and the drawn token usually is near its
// beginning, so only as much is sorted as the draw needs.
class Sampler {
 public:
  Sampler(const Kernels& k, const Logits& x, float best, const Draw& draw)
      : x_(x),
        best_(best),
        draw_(draw),
        least_(least_left(best, draw)),
        left_(total_weight(k, x, best, draw.temperature, least_)) {}

  int32_t pick() {
    if (draw_.top_k > 0 && draw_.top_p < 1) left_ = weight_of_best();
    for (const double reach : kReaches) {
      gather(x_, best_, reach * draw_.temperature, ids_);
      std::sort(ids_.begin(), ids_.end(), Better{x_});
      const int32_t id = try_prefix(reach == kHuge);
      if (id >= 0) return id;
    }
    return ids_[0];
  }

 private:
  // Returns the weight of the tokens that both min_p and top_k keep.
  double weight_of_best() {
    const auto count = static_cast<size_t>(draw_.top_k);
    for (const double reach : kReaches) {
      gather(x_, best_, reach * draw_.temperature, ids_);
      if (ids_.size() >= count) break;
    }
    if (ids_.size() > count) {
      std::nth_element(ids_.begin(), ids_.begin() + draw_.top_k, ids_.end(), Better{x_});
      ids_.resize(count);
    }
    double sum = 0;
    for (const int32_t id : ids_) sum += x_[id] >= least_ ? weight(id) : 0;
    return sum;
  }

  double weight(int32_t id) const {
    return std::exp((static_cast<double>(x_[id]) - best_) / draw_.temperature);
  }

  // Returns the drawn token, or -1 if it depends on tokens that are not in ids_.
  int32_t try_prefix(bool all) {
    sums_.clear();
    double sum = 0;
    bool ended = all;
    for (const int32_t id : ids_) {
      const double w = weight(id);
      const bool enough = draw_.top_k > 0 && static_cast<int64_t>(sums_.size()) >= draw_.top_k;
      if (enough || !(w > 0) || x_[id] < least_) {
        ended = true;
        break;
      }
      sums_.push_back(sum += w);
      if (draw_.top_p < 1 && sum >= draw_.top_p * left_) {
        ended = true;
        break;
      }
    }
    // Without any limit the sum over all kept tokens is known before they are sorted.
    const bool limited = draw_.top_k > 0 || draw_.min_p > 0 || draw_.top_p < 1;
    if (!ended && limited) return -1;
    const double goal = draw_.uniform * (ended ? sum : left_);
    const auto at = std::upper_bound(sums_.begin(), sums_.end(), goal);
    if (at != sums_.end()) return ids_[static_cast<size_t>(at - sums_.begin())];
    return ended ? ids_[sums_.size() - 1] : -1;
  }

  Logits x_;
  float best_;
  Draw draw_;
  double least_;  // the least logit that min_p keeps
  double left_;   // weight of the tokens that min_p and top_k keep
  std::vector<int32_t> ids_;
  std::vector<double> sums_;
};

// One piece of LogitEdits.
struct Piece {
  const int32_t* token;
  const float* add;
  int32_t count, first;
};

// A list that biases all tokens in their order is one addition of arrays.
void edit(float* x, const Piece& piece) {
  if (piece.first >= 0) {
    for (int32_t i = 0; i < piece.count; ++i) x[piece.first + i] += piece.add[i];
  } else {
    for (int32_t i = 0; i < piece.count; ++i) x[piece.token[i]] += piece.add[i];
  }
}

// One row of Penalties.
struct Penalty {
  float divide, once, each;
};

void penalize_row(float* x, const int32_t* list, const Penalty& p) {
  const int32_t *entry = list + 2, *end = entry + 2 * int64_t{*list};
  for (; entry != end; entry += 2) {
    const float v = x[entry[0]], scaled = v > 0 ? v / p.divide : v * p.divide;
    x[entry[0]] = entry[1] > 0 ? scaled - (p.once + p.each * static_cast<float>(entry[1])) : scaled;
  }
}

// Returns the best `count` ids in order. The front of the heap is the worst id that is kept.
std::vector<int32_t> top(const Logits& x, int64_t count) {
  const Better better{x};
  std::vector<int32_t> heap;
  for (int64_t i = 0; i < x.n; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (static_cast<int64_t>(heap.size()) == count) {
      if (!better(id, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.push_back(id);
    std::push_heap(heap.begin(), heap.end(), better);
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  return heap;
}

// Words that allow all of their tokens or none are the rule, so these are told apart first.
void mask_row(float* x, int64_t vocab, const int32_t* allowed) {
  for (int64_t first = 0; first < vocab; first += 32) {
    const auto word = static_cast<uint32_t>(allowed[first / 32]);
    const int64_t count = std::min<int64_t>(32, vocab - first);
    if (word == ~uint32_t{0}) continue;
    for (int64_t i = 0; i < count; ++i)
      if ((word >> i & 1) == 0) x[first + i] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

void CpuOps::edit_logits(Tensor logits, const EditPages& pages, const LogitEdits& edits) {
  pool_.parallel_for(edits.row.rows(), [&](int64_t p, int) {
    const int32_t page = edits.page.as<int32_t>()[p];
    edit(logits.row<float>(edits.row.as<int32_t>()[p]), {.token = pages.token.row<int32_t>(page),
                                                         .add = pages.add.row<float>(page),
                                                         .count = edits.count.as<int32_t>()[p],
                                                         .first = edits.first.as<int32_t>()[p]});
  });
}

void CpuOps::mask_logits(Tensor logits, Tensor rows, Tensor allowed) {
  pool_.parallel_for(rows.rows(), [&](int64_t i, int) {
    mask_row(logits.row<float>(rows.as<int32_t>()[i]), logits.cols(), allowed.row<int32_t>(i));
  });
}

void CpuOps::penalize(Tensor logits, const SeenTokens& seen, const Penalties& penalties) {
  pool_.parallel_for(penalties.row.rows(), [&](int64_t i, int) {
    penalize_row(logits.row<float>(penalties.row.as<int32_t>()[i]),
                 seen.lists.row<int32_t>(penalties.slot.as<int32_t>()[i]),
                 {.divide = penalties.divide.as<float>()[i],
                  .once = penalties.once.as<float>()[i],
                  .each = penalties.each.as<float>()[i]});
  });
}

void CpuOps::sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) {
  pool_.parallel_for(logits.rows(), [&](int64_t r, int) {
    const Logits x = {logits.row<float>(r), logits.cols()};
    const float best = kernels_.max(x.x, x.n);
    const Draw draw = draw_of(batch, r);
    const bool greedy = draw.temperature <= 0 || draw.top_p <= 0 || !std::isfinite(best);
    out_ids.as<int32_t>()[r] = greedy ? first_of(x, best) : Sampler(kernels_, x, best, draw).pick();
  });
}

void CpuOps::logprobs(Tensor chosen_logprob, Tensor chosen_rank, Tensor top_ids,
                      Tensor top_logprobs, Tensor logits, Tensor chosen) {
  const int64_t count = top_ids ? top_ids.cols() : 0;
  SKIFF_CHECK(count <= logits.cols(), "best {} of {}", count, logits.cols());
  pool_.parallel_for(logits.rows(), [&](int64_t r, int) {
    const Logits x = {logits.row<float>(r), logits.cols()};
    const int32_t id = chosen.as<int32_t>()[r];
    SKIFF_CHECK(id >= 0 && id < x.n, "token {} of {}", id, x.n);
    const float best = kernels_.max(x.x, x.n);
    const double norm =
        std::isfinite(best) ? best + std::log(total_weight(kernels_, x, best, 1)) : best;
    const float mine = x[id];
    chosen_logprob.as<float>()[r] = static_cast<float>(mine - norm);
    chosen_rank.as<int32_t>()[r] =
        1 + static_cast<int32_t>(std::count_if(x.x, x.x + x.n, [&](float v) { return v > mine; }));
    if (count == 0) return;
    const std::vector<int32_t> ids = top(x, count);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t t = ids[static_cast<size_t>(i)];
      top_ids.row<int32_t>(r)[i] = t;
      top_logprobs.row<float>(r)[i] = static_cast<float>(x[t] - norm);
    }
  });
}

}  // namespace skiff::cpu
