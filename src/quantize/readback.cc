#include "quantize/readback.h"

#include <set>

#include "base/load_error.h"
#include "model/config.h"
#include "model/registry.h"
#include "model/unpack.h"

namespace skiff::quantize {
namespace {

std::string module_of(const std::string& tensor) {
  for (const std::string_view ending : {".weight_packed", ".qweight", ".weight"})
    if (tensor.ends_with(ending)) return tensor.substr(0, tensor.size() - ending.size());
  return tensor;
}

}  // namespace

uint64_t digest_of(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : std::as_bytes(values))
    hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return hash;
}

void check_written(const std::string& folder, const std::map<std::string, uint64_t>& digests) {
  const model::ModelConfig config = model::read_model_config(folder);
  const Checkpoint checkpoint(folder);
  const auto slots = model::slots_of(config.spec);
  const auto sources =
      model::find_sources(checkpoint, model::find_family(config.spec.arch)->names(),
                          config.quantization, slots, config.spec, DType::kF32);
  std::set<std::string> seen;  // several slots may be cut from one module
  for (const model::Source& source : sources)
    for (const model::StoredModule& module : source.modules) {
      if (!module.format->quantized()) continue;
      const std::string name = module_of(module.of(model::Role::kWeight)->entry->name);
      const auto wanted = digests.find(name);
      std::vector<float> values(static_cast<size_t>(module.shape.out * module.shape.in));
      model::widen(module, {0, module.shape.out, 0, module.shape.in}, values.data());
      if (wanted == digests.end() || digest_of(values) != wanted->second)
        fail_load("{}: {} was not read back as it was written; please report this", folder, name);
      seen.insert(name);
    }
  if (seen.size() != digests.size())
    fail_load("{}: {} rounded weights were written, {} are found; please report this", folder,
              digests.size(), seen.size());
}

}  // namespace skiff::quantize
