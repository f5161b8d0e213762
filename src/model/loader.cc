#include "model/loader.h"

#include <optional>

#include "model/dummy.h"
#include "model/family.h"
#include "model/sources.h"
#include "model/staging.h"
#include "tensor/convert.h"

namespace skiff {
namespace {

// Where plain values come from: a checkpoint or nothing. A Slot is asked for once, by index.
class Values {
 public:
  virtual ~Values() = default;
  virtual Tensor weight(size_t slot, Staging& staging) = 0;
  virtual Tensor bias(size_t slot, Staging& staging) = 0;  // empty when none
  virtual size_t bytes(size_t slot) const = 0;             // for the progress bar
};

class StoredValues final : public Values {
 public:
  StoredValues(const std::string& dir, const ModelSpec& spec, const std::vector<Slot>& slots)
      : slots_(slots), checkpoint_(dir) {
    const Family* family = find_family(spec.arch);
    SKIFF_CHECK(family, "spec of unknown architecture {}", spec.arch);
    const auto rules = family->names();
    try {
      sources_ = find_sources(checkpoint_, rules, slots, spec);
    } catch (const LoadError& e) {
      fail_load("{}: {}", dir, e.what());
    }
  }
  Tensor weight(size_t i, Staging& staging) override {
    return staging.weight(slots_[i], sources_[i]);
  }
  Tensor bias(size_t i, Staging& staging) override { return staging.bias(slots_[i], sources_[i]); }
  size_t bytes(size_t i) const override {
    size_t sum = 0;
    for (const auto* list : {&sources_[i].weights, &sources_[i].biases})
      for (const Piece& p : *list)
        sum += static_cast<size_t>(p.elements()) *
               skiff::bytes(*loadable_dtype(p.tensor->entry->dtype));
    return sum;
  }

 private:
  const std::vector<Slot>& slots_;
  Checkpoint checkpoint_;
  std::vector<Source> sources_;
};

class DummyValues final : public Values {
 public:
  DummyValues(const LoadOptions& options, const ModelSpec& spec, const std::vector<Slot>& slots)
      : slots_(slots), spec_(spec), compute_(options.compute), draws_(options.dummy_seed) {}
  Tensor weight(size_t i, Staging& staging) override {
    const bool wide = slots_[i].kind == Slot::kNorm || slots_[i].kind == Slot::kVector;
    Tensor out = staging.blank_weight(slots_[i], wide ? DType::kF32 : compute_);
    draws_.fill(out, slots_[i]);
    return out;
  }
  Tensor bias(size_t i, Staging& staging) override {
    if (!slots_[i].bias) return {};
    Tensor out = staging.blank_bias(slots_[i]);
    draws_.fill_bias(out, slots_[i]);
    return out;
  }
  size_t bytes(size_t i) const override {
    return is_tied_head(slots_[i], spec_)
               ? 0
               : static_cast<size_t>(slots_[i].elements()) * skiff::bytes(compute_);
  }

 private:
  const std::vector<Slot>& slots_;
  const ModelSpec& spec_;
  DType compute_;
  DummyWeights draws_;
};

// Moves plain values into the form and the memory that the machine computes with.
class Placer {
 public:
  Placer(LoadedModel& model, DType compute, Ops& ops)
      : model_(model), compute_(compute), ops_(ops) {}

  void place(const Slot& slot, Tensor weight, Tensor bias) {
    switch (slot.kind) {
      case Slot::kTable:
        tensor_at(model_.weights, slot) = owned(weight, compute_);
        return;
      case Slot::kVector:
        tensor_at(model_.weights, slot) = owned(weight, DType::kF32);
        return;
      case Slot::kNorm:
        norm_at(model_.weights, slot) = {owned(weight, DType::kF32), slot.eps};
        return;
      case Slot::kLinear:
        linear_at(model_.weights, slot) = prepared({.weight = weight, .bias = bias});
        return;
    }
  }
  // A head that shares the embedding's values still gets a form of its own to multiply with.
  void place_tied_head() {
    model_.weights.head = prepared({.weight = model_.weights.embed, .bias = {}});
  }

 private:
  Linear prepared(const Linear& plain) {
    Buffer buffer;
    const Linear out = ops_.prepare(plain, compute_, &buffer);
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
    return std::make_unique<DummyValues>(options, spec, slots);
  return std::make_unique<StoredValues>(dir, spec, slots);
}

}  // namespace

LoadedModel load_model(const std::string& dir, const ModelConfig& config,
                       const LoadOptions& options, Ops& ops) {
  SKIFF_CHECK(options.compute == DType::kF32 || options.compute == DType::kBF16, "compute in {}",
              name(options.compute));
  LoadedModel model{.spec = config.spec, .weights = {}, .buffers = {}};
  model.weights.layers.resize(model.spec.layers.size());
  const std::vector<Slot> slots = slots_of(model.spec);
  const auto values = open_values(dir, options, model.spec, slots);
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < slots.size(); ++i) total += values->bytes(i);

  Staging staging(/*pinned=*/ops.device() != Device{});
  Placer placer(model, options.compute, ops);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], model.spec)) {
      placer.place_tied_head();
    } else {
      const Tensor bias = values->bias(i, staging);
      placer.place(slots[i], values->weight(i, staging), bias);
    }
    done += values->bytes(i);
    if (options.progress) options.progress(done, total);
  }
  return model;
}

}  // namespace skiff
