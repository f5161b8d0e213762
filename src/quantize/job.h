// quantize/job.h -- quantizes a whole model from one folder into another, layer by layer: memory
// holds the weights of one layer at a time, and what calibration keeps of its data.
#pragma once
#include <filesystem>

#include "base/progress.h"
#include "quantize/quality.h"
#include "quantize/settings.h"

namespace skiff::quantize {

// Tokens that the model sees as one text. Those from `first` on count for quality.
struct Sequence {
  std::vector<int32_t> tokens;
  size_t first = 1;
};

struct Data {
  std::vector<Sequence> calibration;  // may be empty where the target needs none
  std::vector<Sequence> heldout;      // quality is measured on these; empty: it is not
};

// What a job will take, from sizes and a measured rate.
struct Estimate {
  size_t memory = 0;  // bytes
  double seconds = 0;
  size_t output = 0;  // bytes of tensors
};
Estimate estimate(const ModelFile& file, const Settings& settings, const Data& data, Ops& ops);

struct Report {
  int64_t units = 0, plain = 0;  // matrices that were rounded, and that were not
  // Matrices of a checkpoint in eight-bit floats that were rounded from these to fewer bits, that
  // stay as they are, and that become bfloat16, because the layout has no place for them or a
  // factor changed them.
  int64_t rounded_again = 0, passed = 0, widened = 0;
  int64_t few_tokens = 0, unfactored = 0;
  int64_t folds = 0, folds_tried = 0;
  int64_t shifts = 0;             // layers whose values were shifted
  double error = 0, nearest = 0;  // the error of outputs on the calibration data
  uint64_t bytes_before = 0, bytes_after = 0;
  std::optional<Quality> quality;
};

struct Job {
  std::filesystem::path out;
  uint64_t shard_bytes = uint64_t{5} << 30;
  Progress progress;  // layers
};

// Refuse, before anything is computed, a model that the settings do not fit, and a folder that is
// in use.
void check_model(const ModelFile& file, const Settings& settings);
void check_place(const std::filesystem::path& out);

// Writes the folder, reads it back with the loader's own readers, and compares every rounded weight
// with what was decided, before the folder appears at its place. `ops` computes in float32 on the
// host. The result depends neither on threads nor on the order of files. Throws LoadErrors.
Report quantize_model(const ModelFile& file, const Settings& settings, const Data& data,
                      const Job& job, Ops& ops);

}  // namespace skiff::quantize
