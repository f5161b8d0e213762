#include "model/formats/packed_words.h"

#include <algorithm>

#include "base/log.h"
#include "model/family.h"
#include "model/stored_numbers.h"
#include "weights/name_list.h"

namespace skiff::model {

std::vector<int64_t> zeros_of_groups(const ModuleShape& m, const StoredFormat& f) {
  const int64_t per_word = 32 / f.bits;
  return {blocks_in(m.in, f.values.block_in), (m.out + per_word - 1) / per_word};
}

std::vector<int64_t> scales_of_groups(const ModuleShape& m, const StoredFormat& f) {
  return {blocks_in(m.in, f.values.block_in), m.out};
}

void group_scales(const StoredModule& m, const BlockRows& rows, float* to) {
  const StoredTensor& tensor = *m.of(Role::kScale);
  const int64_t groups = tensor.entry->shape[0];
  for (int64_t n = rows.first; n < rows.first + rows.count; ++n)
    for (int64_t g = 0; g < groups; ++g) *to++ = stored_float(tensor, g * m.shape.out + n);
}

std::vector<TensorRule> packed_word_rules(std::vector<int64_t> (*weight)(const ModuleShape& module,
                                                                         const StoredFormat& f)) {
  return {
      {.role = Role::kWeight, .suffixes = {".qweight"}, .dtypes = {"I32"}, .shape = weight},
      {.role = Role::kZero, .suffixes = {".qzeros"}, .dtypes = {"I32"}, .shape = zeros_of_groups},
      {.role = Role::kScale,
       .suffixes = {".scales"},
       .dtypes = {"F16", "BF16", "F32"},
       .shape = scales_of_groups},
      bias_rule()};
}

WordLayout::WordLayout(const Fields& fields, std::initializer_list<int> allowed)
    : bits(need_int(fields, fields.has("bits") ? "bits" : "w_bit", 1, 64)) {
  if (std::ranges::find(allowed, bits) == allowed.end())
    fail_load("{}: \"bits\" is {}; supported: {}", fields.where(), bits, name_list(allowed));
  group = need_int(fields, fields.has("group_size") ? "group_size" : "q_group_size", -1, kMaxWidth);
  if (group == 0)
    fail_load("{}: \"group_size\" is {}; it must be -1 or positive", fields.where(), group);
  if (group == -1) group = 0;
}

std::string WordLayout::name(std::string_view method) const {
  return fmt::format("{}, {} bits, {}", method, bits,
                     group ? fmt::format("groups of {}", group) : "rows");
}

void use_for_all_others(Quantization& made, const Fields& fields, StoredFormat format) {
  made.about = format.name;
  made.formats = {std::move(format)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  // Optimum's layers have a bias each, of zeros where the model has none.
  made.zeros = {".bias"};
}

}  // namespace skiff::model
