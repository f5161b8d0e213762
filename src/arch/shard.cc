#include "arch/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace skiff {
namespace {

constexpr int kMaxSize = 64;  // bound on the group sizes that a refusal lists

bool divides(int part, int whole) { return part > 0 && whole % part == 0; }

// Says why `total` things cannot be shared out, or nothing.
std::optional<std::string> obstacle(int total, int size, std::string_view things, size_t layer) {
  if (divides(size, total)) return std::nullopt;
  return fmt::format("the {} {} of layer {}", total, things, layer);
}

std::optional<std::string> obstacle(const Gqa& m, int size, size_t layer) {
  if (auto found = obstacle(m.heads, size, "query heads", layer)) return found;
  if (divides(m.kv_heads, size)) return std::nullopt;  // replicated
  return obstacle(m.kv_heads, size, "key and value heads", layer);
}
std::optional<std::string> obstacle(const Mla& m, int size, size_t layer) {
  return obstacle(m.heads, size, "query heads", layer);
}
std::optional<std::string> obstacle(const Dense& f, int size, size_t layer) {
  return obstacle(f.width, size, "columns of the feed-forward width", layer);
}
std::optional<std::string> obstacle_of_routed(const Moe& f, int size, size_t layer) {
  if (f.deal == Moe::kSlices)
    return obstacle(f.width, size, "columns of the experts' width", layer);
  if (f.router.experts >= size) return std::nullopt;  // each rank has one at least
  return obstacle(f.router.experts, size, "experts", layer);
}
std::optional<std::string> obstacle(const Moe& f, int size, size_t layer) {
  if (auto found = obstacle_of_routed(f, size, layer)) return found;
  return obstacle(f.shared_width, size, "columns of the shared expert's width", layer);
}

std::optional<std::string> obstacle(const ModelSpec& spec, int size) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto of_kind = [&](const auto& kind) { return obstacle(kind, size, i); };
    if (auto found = std::visit(of_kind, spec.layers[i].mixer)) return found;
    if (auto found = std::visit(of_kind, spec.layers[i].ffn)) return found;
  }
  if (spec.head != HeadKind::kVocab || divides(size, spec.head_rows())) return std::nullopt;
  return fmt::format("the {} rows of the vocabulary", spec.head_rows());
}

void cut(Gqa& m, int rank, int size) {
  m.heads = share_of(m.heads, rank, size).count;
  m.kv_heads = share_of(m.kv_heads, rank, size).count;
  m.out_bias = m.out_bias && rank == 0;
}
void cut(Mla& m, int rank, int size) { m.heads = share_of(m.heads, rank, size).count; }
void cut(Dense& f, int rank, int size) { f.width = share_of(f.width, rank, size).count; }
void cut_routed(Moe& f, int rank, int size) {
  if (f.deal == Moe::kSlices) {
    f.width = share_of(f.width, rank, size).count;
    return;
  }
  SKIFF_CHECK(f.router.always == 0, "{} experts are always on", f.router.always);
  const Share mine = balanced_share_of(f.router.here(), rank, size);
  f.router.before += mine.first;
  f.router.behind = f.router.experts - f.router.before - mine.count;
}
void cut(Moe& f, int rank, int size) {
  cut_routed(f, rank, size);
  f.shared_width = share_of(f.shared_width, rank, size).count;
}

}  // namespace

Share share_of(int total, int rank, int size) {
  SKIFF_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  if (total > 0 && total < size) {
    SKIFF_CHECK(divides(total, size), "{} among {} ranks", total, size);
    return {.first = rank / (size / total), .count = 1};
  }
  SKIFF_CHECK(divides(size, total), "{} among {} ranks", total, size);
  return {.first = rank * (total / size), .count = total / size};
}

Share balanced_share_of(int total, int rank, int size) {
  SKIFF_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  SKIFF_CHECK(total >= size, "{} among {} ranks", total, size);
  const int each = total / size, more = total % size;
  return {.first = rank * each + std::min(rank, more), .count = each + (rank < more ? 1 : 0)};
}

void separate_shared_experts(ModelSpec& spec) {
  for (Layer& layer : spec.layers)
    if (auto* moe = std::get_if<Moe>(&layer.ffn)) {
      moe->shared_width += moe->router.always * moe->width;
      moe->router.always = 0;
    }
}

void deal_experts_whole(ModelSpec& spec) {
  separate_shared_experts(spec);
  for (Layer& layer : spec.layers)
    if (auto* moe = std::get_if<Moe>(&layer.ffn)) moe->deal = Moe::kWhole;
}

bool deals_experts_whole(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const Layer& layer) {
    const auto* moe = std::get_if<Moe>(&layer.ffn);
    return moe != nullptr && moe->deal == Moe::kWhole;
  });
}

Result<ModelSpec> shard(const ModelSpec& spec, int rank, int size) {
  SKIFF_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  if (size == 1) return spec;
  if (const auto found = obstacle(spec, size)) {
    std::string fitting = "1";
    for (int n = 2; n <= kMaxSize; ++n)
      if (!obstacle(spec, n)) fitting += fmt::format(", {}", n);
    return Error{.code = Code::kInvalid,
                 .what = fmt::format("{} cannot be shared out among {} ranks; sizes that fit this "
                                     "model: {}",
                                     *found, size, fitting)};
  }
  ModelSpec local = spec;
  for (Layer& layer : local.layers) {
    const auto of_kind = [&](auto& kind) { cut(kind, rank, size); };
    std::visit(of_kind, layer.mixer);
    std::visit(of_kind, layer.ffn);
  }
  return local;
}

Result<ModelSpec> share_experts(const ModelSpec& spec, int replica, int replicas) {
  ModelSpec local = spec;
  if (replicas == 1) return local;
  for (size_t i = 0; i < local.layers.size(); ++i) {
    auto* moe = std::get_if<Moe>(&local.layers[i].ffn);
    if (moe == nullptr) continue;
    SKIFF_CHECK(moe->deal == Moe::kWhole, "layer {} has slices of its experts", i);
    if (moe->router.here() < replicas)
      return Error{.code = Code::kInvalid,
                   .what = fmt::format(
                       "layer {} has {} experts{}, fewer than {} replicas", i, moe->router.here(),
                       moe->router.here() < moe->router.experts ? " on a rank" : "", replicas)};
    cut_routed(*moe, replica, replicas);
    moe->sharers = replicas;
  }
  return local;
}

}  // namespace skiff
