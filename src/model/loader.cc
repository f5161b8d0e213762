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
  Placer(LoadedModel& model, const Precision& precision, Ops& ops)
      : model_(model), precision_(precision), ops_(ops) {}

  void place(const Slot& slot, Tensor weight, Tensor bias) {
    const Slot::Place place = slot.place(model_.weights);
    const WeightFormat keep = slot.kept(precision_);
    switch (slot.kind) {
      case Slot::kTable:
      case Slot::kVector:
        *std::get<Tensor*>(place) = owned(weight, keep.dtype);
        return;
      case Slot::kNorm:
        *std::get<Norm*>(place) = {owned(weight, keep.dtype), slot.eps};
        return;
      case Slot::kLinear:
        *std::get<Linear*>(place) =
            prepared({.weight = weight, .bias = bias, .experts = slot.experts}, keep);
        return;
    }
  }
  // The head shares the embedding's values but is prepared apart, as a weight to multiply by.
  void place_tied_head(const Slot& head) {
    model_.weights.head = prepared({.weight = model_.weights.embed}, head.kept(precision_));
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
  const Precision& precision_;
  Ops& ops_;
};

std::unique_ptr<Values> open_values(const std::string& dir, const LoadOptions& options,
                                    const ModelSpec& spec, const std::vector<Slot>& slots) {
  if (options.format == LoadFormat::kDummy)
    return dummy_values(options.dummy_seed, options.precision.act, spec, slots);
  return stored_values(dir, spec, slots);
}

// A few threads read as fast as the memory or the disk allows; more would only occupy cores.
int readers(int wanted) {
  constexpr int kMaxReaders = 8;
  if (wanted > 0) return wanted;
  return std::min(usable_processors(), kMaxReaders);
}

void check_precision(const Precision& precision, const Ops& ops) {
  SKIFF_CHECK(precision.act == DType::kF32 || precision.act == DType::kBF16, "activations in {}",
              name(precision.act));
  if (!ops.multiplies(precision.weights))
    fail_load("the {} backend cannot multiply weights kept as {}", ops.name(),
              describe(precision.weights));
}

}  // namespace

LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops) {
  check_precision(options.precision, ops);
  LoadedModel model{.spec = config.spec, .weights = empty_weights(config.spec), .buffers = {}};
  const std::vector<Slot> slots = slots_of(model.spec);
  const auto values = open_values(dir, options, model.spec, slots);
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < slots.size(); ++i) total += values->bytes(i);

  Staging staging(*values, slots, model.spec, ops, readers(options.threads), options.chunk_bytes);
  Placer placer(model, options.precision, ops);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], model.spec)) {
      placer.place_tied_head(slots[i]);
    } else {
      const Staging::Plain plain = staging.take(i);
      placer.place(slots[i], plain.weight, plain.bias);
    }
    done += values->bytes(i);
    if (options.progress) options.progress(done, total);
  }
  return model;
}

}  // namespace skiff::model
