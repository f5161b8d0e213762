// model/scale_tables.h -- scales that a checkpoint keeps in JSON files beside its tensors, as
// PaddleNLP writes them: a number or a list of numbers under each name.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace skiff::model {

// One such file, read whole.
class ScaleTable {
 public:
  // Throws a LoadError that names the file, and the key whose value is no number and no list of
  // numbers. A file that is not there is an error of need() only, because a folder may have a
  // configuration and nothing else.
  ScaleTable(const std::string& dir, std::string_view file);

  // The numbers under the name: `count` of them, none of them infinite or negative. Throws a
  // LoadError that names file, key and number.
  const std::vector<float>& need(const std::string& name, int64_t count) const;

 private:
  std::string path_, absent_;  // `absent_`: what is wrong where there is no file
  std::map<std::string, std::vector<float>, std::less<>> numbers_;
};

// The files of one checkpoint; numbers are the largest magnitudes that were seen.
struct ScaleTables {
  explicit ScaleTables(const std::string& dir)
      : weights(dir, "weight_scales.json"), inputs(dir, "act_scales.json") {}

  ScaleTable weights, inputs;
};

}  // namespace skiff::model
