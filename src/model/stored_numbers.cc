#include "model/stored_numbers.h"

#include <cmath>
#include <limits>

#include "tensor/convert.h"

namespace skiff::model {

float stored_float(const StoredTensor& tensor, int64_t index) {
  const std::string& dtype = tensor.entry->dtype;
  if (dtype == "F32") return stored<float>(tensor, index);
  if (dtype == "F16") return to_float(stored<F16>(tensor, index));
  if (dtype == "BF16") return to_float(stored<BF16>(tensor, index));
  SKIFF_CHECK(dtype == "F8_E8M0" || dtype == "U8", "no scales in {}", dtype);
  const int exponent = stored<uint8_t>(tensor, index);
  return exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                         : std::ldexp(1.0f, exponent - 127);
}

void stored_scales(const StoredModule& module, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *module.of(Role::kScale);
  const WeightFormat& format = module.format->values;
  const int64_t down = blocks_in(module.shape.out, format.block_out);
  const int64_t across = blocks_in(module.shape.in, format.block_in);
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r)
    for (int64_t c = 0; c < across; ++c)
      *to++ = stored_float(tensor, module.shape.transposed ? c * down + r : r * across + c);
}

}  // namespace skiff::model
