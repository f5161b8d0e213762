#include "model/loader.h"

#include <algorithm>

#include "base/load_error.h"
#include "base/processors.h"
#include "model/staging.h"

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
  void place_tied_head(const Slot& head, const Kept& kept) {
    const Tensor embed = model_.weights.embed;
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
                                    const ModelConfig& config, const std::vector<Slot>& slots) {
  if (options.format == LoadFormat::kDummy)
    return dummy_values(options.dummy_seed, options.precision.act, config.spec, slots);
  return stored_values(dir, config, slots, options.precision.act);
}

// A few threads read as fast as the memory or the disk allows; more would only occupy cores.
int readers(int wanted) {
  constexpr int kMaxReaders = 8;
  if (wanted > 0) return wanted;
  return std::min(usable_processors(), kMaxReaders);
}

[[noreturn]] void refuse(const Slot& slot, const SchemeChoice& choice, const WeightFormat& format,
                         const Ops& ops) {
  std::string others;
  for (const Scheme& scheme : schemes())
    if (ops.multiplies(scheme.format))
      others += (others.empty() ? "" : ", ") + std::string(scheme.name);
  fail_load(
      "--quantization {}: the {} backend cannot multiply {} here; {}",
      choice.of(slot.layer_kind)->name, ops.name(), skiff::describe(format),
      others.empty() ? "it takes no quantized weights: use --device cpu" : "choose from " + others);
}

}  // namespace

std::vector<Kept> check_formats(const std::vector<Slot>& slots, const Precision& precision,
                                const SchemeChoice& schemes, const Ops& ops) {
  SKIFF_CHECK(precision.act == DType::kF32 || precision.act == DType::kBF16, "activations in {}",
              name(precision.act));
  if (!ops.multiplies(precision.weights))
    fail_load("the {} backend cannot multiply weights kept as {}", ops.name(),
              skiff::describe(precision.weights));
  std::vector<Kept> all;
  for (const Slot& slot : slots) {
    const Kept& kept = all.emplace_back(slot.kept(precision, schemes));
    if (kept.rule && !ops.multiplies(kept.format)) refuse(slot, schemes, kept.format, ops);
  }
  return all;
}

LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops) {
  LoadedModel model{.spec = config.spec, .weights = empty_weights(config.spec), .buffers = {}};
  const std::vector<Slot> slots = slots_of(model.spec);
  const std::vector<Kept> kept = check_formats(slots, options.precision, options.schemes, ops);
  const auto values = open_values(dir, options, config, slots);
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < slots.size(); ++i) total += values->bytes(i);

  Staging staging(*values, slots, kept, model.spec, ops, readers(options.threads),
                  options.chunk_bytes);
  Placer placer(model, ops);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], model.spec)) {
      placer.place_tied_head(slots[i], kept[i]);
    } else {
      placer.place(slots[i], staging.take(i), kept[i].format);
    }
    done += values->bytes(i);
    if (options.progress) options.progress(done, total);
  }
  return model;
}

}  // namespace skiff::model
