// model/formats/packed_words.h -- what GPTQ and AWQ have in common: elements in words of 32 bits,
// .qweight; zero points, .qzeros, in words along the output; and .scales [groups, out].
#pragma once
#include "model/quantization.h"

namespace skiff::model {

// Shapes.
std::vector<int64_t> zeros_of_groups(const ModuleShape& module, const StoredFormat& format);
std::vector<int64_t> scales_of_groups(const ModuleShape& module, const StoredFormat& format);

// An Unpacking::scales for scales [groups, out].
void group_scales(const StoredModule& module, const BlockRows& rows, float* to);

// Returns the rules for the three tensors of a packed weight and for a bias.
std::vector<TensorRule> packed_word_rules(std::vector<int64_t> (*weight)(const ModuleShape& module,
                                                                         const StoredFormat& f));

// "bits" (or "w_bit") and "group_size" (or "q_group_size"); 0 stands for whole rows.
struct WordLayout {
  int bits = 0, group = 0;

  // Throws a LoadError that names the key for bits other than `allowed` and sizes out of range.
  WordLayout(const Fields& fields, std::initializer_list<int> allowed);
  // Words for people: "GPTQ, 4 bits, groups of 128".
  std::string name(std::string_view method) const;
};

// Makes every layer that no rule of `made` matches one of that format. Biases of zeros that the
// model has no place for are allowed.
void use_for_all_others(Quantization& made, const Fields& fields, StoredFormat format);

}  // namespace skiff::model
