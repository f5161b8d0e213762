// quantize/readback.h -- does a written folder hold what was decided?
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace skiff::quantize {

// Identifies the values of a weight, bit by bit (FNV-1a).
uint64_t digest_of(std::span<const float> values);

// Reads the folder as the loader does. Throws a LoadError that names the first module whose values
// are not those behind its digest, or that is missing.
void check_written(const std::string& folder, const std::map<std::string, uint64_t>& digests);

}  // namespace skiff::quantize
