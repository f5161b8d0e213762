#include "model/loader.h"

#include <algorithm>

#include "arch/shard.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/round_up.h"
#include "model/kv_scales.h"
#include "model/staging.h"
#include "tensor/convert.h"

namespace skiff::model {
namespace {

// Puts plain values into the form and the memory that the backend computes with.
class Placer {
 public:
  Placer(LoadedModel& model, Ops& ops) : model_(model), ops_(ops) {}

  void place(const Slot& slot, const Linear& values, const WeightFormat& keep) {
    const Slot::Place place = slot.place(model_.weights);
    switch (slot.kind) {
      case Slot::kTable:
      case Slot::kVector:
        *std::get<Tensor*>(place) = owned(values.weight, keep.dtype);
        return;
      case Slot::kNorm:
        *std::get<Norm*>(place) = {owned(values.weight, keep.dtype), slot.eps};
        return;
      case Slot::kLinear:
        *std::get<Linear*>(place) = prepared(values, keep);
        return;
    }
  }
  // The head shares the embedding's values but is prepared apart, as a weight to multiply by.
  void place_tied_head(const Slot& head, const Kept& kept, const RankOf& part) {
    const Tensor embed = model_.weights.embed.row_range(part.rank * head.out, head.out);
    if (!kept.rule) {
      model_.weights.head = prepared({.weight = embed}, kept.format);
      return;
    }
    CodeBuffer codes(ops_.device());
    codes.reserve(head, kept.format);
    const Linear q = codes.view(head, kept.format);
    ops_.quantize(q, embed, *kept.rule);
    model_.weights.head = prepared(q, kept.format);
    ops_.wait(ops_.mark());  // the codes are freed now
  }

 private:
  Linear prepared(const Linear& plain, const WeightFormat& format) {
    Buffer buffer;
    const Linear out = ops_.prepare(plain, format, &buffer);
    keep(std::move(buffer));
    return out;
  }
  Tensor owned(Tensor values, DType dtype) {
    Buffer buffer(ops_.device(), byte_size(dtype, values.elements()));
    const Tensor out = buffer.view(dtype, {values.dim[0], values.dim[1]});
    ops_.copy(out, values.reshaped({values.dim[0], values.dim[1]}));
    ops_.wait(ops_.mark());  // the caller may overwrite the values now
    keep(std::move(buffer));
    return out;
  }
  void keep(Buffer buffer) {
    model_.bytes += buffer.size();
    model_.buffers.push_back(std::move(buffer));
  }

  LoadedModel& model_;
  Ops& ops_;
};

std::unique_ptr<Values> open_values(const std::string& dir, const LoadOptions& options,
                                    const ModelConfig& config, const std::vector<Slot>& slots,
                                    std::span<const SlotCut> cuts) {
  if (options.format == LoadFormat::kDummy)
    return dummy_values(options.dummy_seed, options.precision.act, config.spec, slots, cuts);
  return stored_values(dir, config, slots, options.precision.act, cuts,
                       options.part.first() ? Remarks::kLogged : Remarks::kLeftOut);
}

// A few threads read as fast as the memory or the disk allows; more would only occupy cores.
int readers(int wanted) {
  constexpr int kMaxReaders = 8;
  if (wanted > 0) return wanted;
  return std::min(usable_processors(), kMaxReaders);
}

// Leaves of a layer's scales those of the rank's KV heads.
void cut_scales(std::vector<float>& scales, const RankOf& part) {
  const Share share = share_of(static_cast<int>(scales.size()), part.rank, part.size);
  const auto first = scales.begin() + share.first;
  scales = std::vector<float>(first, first + share.count);
}

// Brings the checkpoint's scales of the KV cache to where `ops` computes.
void load_kv_scales(const std::string& dir, const ModelConfig& config, const KvFormat& kv,
                    const RankOf& part, Ops& ops, LoadedModel& model) {
  auto scales = read_kv_scales(dir, config, kv.dtype);
  if (!scales) fail_load("{}: no scales of the KV cache", dir);
  for (KvScales& s : *scales) cut_scales(s.k, part), cut_scales(s.v, part);
  size_t size = 0;
  const auto place = [&](size_t numbers) {
    const size_t at = size;
    size = round_up(at + numbers * sizeof(BF16), kTensorAlign);
    return at;
  };
  for (const KvScales& s : *scales) place(s.k.size()), place(s.v.size());
  model.kv_memory = Buffer(ops.device(), size);
  size = 0;
  const auto bring = [&](const std::vector<float>& numbers) {
    std::vector<BF16> narrow;
    narrow.reserve(numbers.size());
    for (const float x : numbers) narrow.push_back(to_bf16(x));
    const auto n = std::ssize(narrow);
    const Tensor to = model.kv_memory.view(DType::kBF16, {n}, place(narrow.size()));
    ops.copy(to, host_tensor(narrow.data(), DType::kBF16, {n}));
    return to;
  };
  for (const KvScales& s : *scales) {
    const Tensor k = bring(s.k);
    model.kv_scales.push_back({k, bring(s.v)});
  }
  ops.wait(ops.mark());
}

ModelSpec local_spec(const ModelSpec& whole, const RankOf& part) {
  auto local = spec_of(whole, part);
  if (!local) fail_load("{}", local.error().what);
  return *std::move(local);
}

[[noreturn]] void refuse(const Slot& slot, const SchemeChoice& choice, const WeightFormat& format,
                         const Ops& ops, std::string_view asked) {
  std::string others;
  for (const Scheme& scheme : schemes())
    if (ops.multiplies(scheme.format))
      others += (others.empty() ? "" : ", ") + std::string(scheme.name);
  fail_load(
      "{} {}: the {} backend cannot multiply {} here; {}", asked, choice.of(slot.layer_kind)->name,
      ops.name(), skiff::describe(format),
      others.empty() ? "it takes no quantized weights: use --device cpu" : "choose from " + others);
}

}  // namespace

std::vector<Kept> check_formats(const std::vector<Slot>& slots, const Precision& precision,
                                const SchemeChoice& schemes, const Ops& ops,
                                std::span<const StoredForm> stored, std::string_view asked) {
  SKIFF_CHECK(precision.act == DType::kF32 || precision.act == DType::kBF16, "activations in {}",
              name(precision.act));
  if (!ops.multiplies(precision.weights))
    fail_load("the {} backend cannot multiply weights kept as {}", ops.name(),
              skiff::describe(precision.weights));
  std::vector<Kept> all =
      kept_slots(slots, precision, schemes, stored,
                 [&](const WeightFormat& format) { return ops.multiplies(format); });
  for (size_t i = 0; i < slots.size(); ++i)
    if (all[i].rule && !ops.multiplies(all[i].format))
      refuse(slots[i], schemes, all[i].format, ops, asked);
  return all;
}

LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops) {
  LoadedModel model{.spec = local_spec(config.spec, options.part),
                    .weights = empty_weights(config.spec),
                    .buffers = {}};
  const std::vector<Slot> slots = slots_of(model.spec, options.part.size);
  const std::vector<SlotCut> cuts = cut_slots(config.spec, slots, options.part);
  const auto values = open_values(dir, options, config, slots, cuts);
  std::vector<StoredForm> stored;
  for (size_t i = 0; i < slots.size(); ++i) stored.push_back(values->form(i));
  const std::vector<Kept> kept =
      check_formats(slots, options.precision, options.schemes, ops, stored);
  for (const std::string& line : widened_formats(kept, stored))
    if (options.part.first())
      spdlog::info("{}, which the {} backend does not multiply: they are widened to {}", line,
                   ops.name(), name(options.precision.act));
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < slots.size(); ++i) total += values->bytes(i);

  Staging staging(*values, slots, kept, model.spec, ops, readers(options.threads),
                  options.chunk_bytes);
  Placer placer(model, ops);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], model.spec)) {
      placer.place_tied_head(slots[i], kept[i], options.part);
    } else {
      placer.place(slots[i], staging.take(i), kept[i].format);
    }
    done += values->bytes(i);
    if (options.progress) options.progress(done, total);
  }
  if (options.precision.kv.fixed)
    load_kv_scales(dir, config, options.precision.kv, options.part, ops, model);
  return model;
}

}  // namespace skiff::model
