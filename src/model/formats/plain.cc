// Values as they are, in floats of 16 or 32 bits.
#include "model/stored_format.h"

namespace skiff::model {

StoredFormat plain_format() {
  // A name rule may also name a tensor in full.
  return {.name = "plain",
          .tensors = {{.role = Role::kWeight,
                       .suffixes = {".weight", ""},
                       .dtypes = {"F32", "F16", "BF16"},
                       .shape = shape_of_matrix},
                      bias_rule()},
          .values = {},
          .stacks = true};
}

}  // namespace skiff::model
