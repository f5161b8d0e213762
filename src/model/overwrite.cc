#include "model/overwrite.h"

#include <utility>

#include "tensor/returned_memory.h"

namespace skiff::model {
namespace {

// Tells where a tensor lies, counted from `begin`, and what it holds.
std::string form_of(const Tensor& tensor, const void* begin) {
  if (tensor.data == nullptr) return "none";
  return fmt::format("{} [{}, {}, {}, {}] rows {} apart at {}", name(tensor.dtype), tensor.dim[0],
                     tensor.dim[1], tensor.dim[2], tensor.dim[3], tensor.row_stride,
                     static_cast<const char*>(tensor.data) - static_cast<const char*>(begin));
}

std::string form_of(const Linear& w) {
  std::string form = describe(w.format);
  form += fmt::format(", packing {}, {} experts", int{static_cast<uint8_t>(w.packing)}, w.experts);
  for (const Tensor& t : {w.weight, w.scale, w.zero, w.bias, w.input_scale, w.order})
    form += "; " + form_of(t, w.weight.data);
  return form;
}

std::string form_of(const Slot::Place& place) {
  if (auto* const* linear = std::get_if<Linear*>(&place)) return form_of(**linear);
  if (auto* const* norm = std::get_if<Norm*>(&place))
    return form_of((*norm)->weight, (*norm)->weight.data);
  const Tensor& tensor = *std::get<Tensor*>(place);
  return form_of(tensor, tensor.data);
}

Error differs(const std::string& what, const std::string& here, const std::string& there) {
  return {Code::kInvalid,
          fmt::format("{} is {} in this server and {} in the new weights: they need a server of "
                      "their own",
                      what, here, there)};
}

void overwrite(const Buffer& to, Buffer from, Ops& ops) {
  if (to.size() == 0) return;
  if (move_to(to, from)) return;
  const auto n = static_cast<int64_t>(to.size());
  ops.copy(to.view(DType::kU8, {1, n}), from.view(DType::kU8, {1, n}));
  ops.wait(ops.mark());  // `from` is freed now
}

}  // namespace

Status check_same_form(const LoadedModel& to, const LoadedModel& from) {
  // Slot::place() takes weights that may be changed, but nothing is changed here.
  auto& here = const_cast<ModelWeights&>(to.weights);
  auto& there = const_cast<ModelWeights&>(from.weights);
  for (const Slot& slot : slots_of(to.spec)) {
    const std::string mine = form_of(slot.place(here)), other = form_of(slot.place(there));
    if (mine != other) return differs(describe_slot(slot), mine, other);
  }
  if (to.buffers.size() != from.buffers.size())
    return differs("the number of weights", fmt::format("{}", to.buffers.size()),
                   fmt::format("{}", from.buffers.size()));
  for (size_t i = 0; i < to.buffers.size(); ++i)
    if (to.buffers[i].size() != from.buffers[i].size())
      return differs("the size of a weight", fmt::format("{} bytes", to.buffers[i].size()),
                     fmt::format("{} bytes", from.buffers[i].size()));
  if (to.kv_memory.size() != from.kv_memory.size())
    return differs("the size of the KV cache's scales",
                   fmt::format("{} bytes", to.kv_memory.size()),
                   fmt::format("{} bytes", from.kv_memory.size()));
  return ok();
}

void overwrite(LoadedModel& to, LoadedModel from, Ops& ops) {
  for (size_t i = 0; i < to.buffers.size(); ++i)
    overwrite(to.buffers[i], std::exchange(from.buffers[i], Buffer()), ops);
  overwrite(to.kv_memory, std::move(from.kv_memory), ops);
}

}  // namespace skiff::model
