#include "model/loader.h"

#include <algorithm>

#include "base/processors.h"
#include "model/staging.h"

namespace skiff {
namespace {

// Moves plain values into the form and the memory that the machine computes with.
class Placer {
 public:
  Placer(LoadedModel& model, DType compute, Ops& ops)
      : model_(model), compute_(compute), ops_(ops) {}

  void place(const Slot& slot, Tensor weight, Tensor bias) {
    const Slot::Place place = slot.place(model_.weights);
    const DType dtype = slot.dtype(compute_);
    switch (slot.kind) {
      case Slot::kTable:
      case Slot::kVector:
        *std::get<Tensor*>(place) = owned(weight, dtype);
        return;
      case Slot::kNorm:
        *std::get<Norm*>(place) = {owned(weight, dtype), slot.eps};
        return;
      case Slot::kLinear:
        *std::get<Linear*>(place) =
            prepared({.weight = weight, .bias = bias, .experts = slot.experts}, dtype);
        return;
    }
  }
  // A head that shares the embedding's values still gets a form of its own to multiply with.
  void place_tied_head() {
    model_.weights.head = prepared({.weight = model_.weights.embed, .bias = {}}, compute_);
  }

 private:
  Linear prepared(const Linear& plain, DType dtype) {
    Buffer buffer;
    const Linear out = ops_.prepare(plain, dtype, &buffer);
    keep(std::move(buffer));
    return out;
  }
  Tensor owned(Tensor values, DType dtype) {
    Buffer buffer(ops_.device(), static_cast<size_t>(values.elements()) * bytes(dtype));
    const Tensor out = buffer.view(dtype, {values.dim[0], values.dim[1]});
    ops_.copy(out, values.reshaped({values.dim[0], values.dim[1]}));
    ops_.wait(ops_.mark());  // the values may be forgotten
    keep(std::move(buffer));
    return out;
  }
  void keep(Buffer buffer) {
    model_.bytes += buffer.size();
    model_.buffers.push_back(std::move(buffer));
  }

  LoadedModel& model_;
  DType compute_;
  Ops& ops_;
};

std::unique_ptr<Values> open_values(const std::string& dir, const LoadOptions& options,
                                    const ModelSpec& spec, const std::vector<Slot>& slots) {
  if (options.format == LoadFormat::kDummy)
    return dummy_values(options.dummy_seed, options.compute, spec, slots);
  return stored_values(dir, spec, slots);
}

// A few threads read as fast as memory or a disk gives; more would only take cores from others.
int readers(int wanted) {
  constexpr int kMost = 8;
  if (wanted > 0) return wanted;
  return std::min(usable_processors(), kMost);
}

}  // namespace

LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops) {
  SKIFF_CHECK(options.compute == DType::kF32 || options.compute == DType::kBF16, "compute in {}",
              name(options.compute));
  LoadedModel model{.spec = config.spec, .weights = empty_weights(config.spec), .buffers = {}};
  const std::vector<Slot> slots = slots_of(model.spec);
  const auto values = open_values(dir, options, model.spec, slots);
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < slots.size(); ++i) total += values->bytes(i);

  Staging staging(*values, slots, model.spec, ops, readers(options.threads), options.chunk_bytes);
  Placer placer(model, options.compute, ops);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], model.spec)) {
      placer.place_tied_head();
    } else {
      const Staging::Plain plain = staging.take(i);
      placer.place(slots[i], plain.weight, plain.bias);
    }
    done += values->bytes(i);
    if (options.progress) options.progress(done, total);
  }
  return model;
}

}  // namespace skiff
