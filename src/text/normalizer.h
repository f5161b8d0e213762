// text/normalizer.h -- "normalizer" of tokenizer.json: the steps that change a text before it is
// split.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"

namespace skiff::text {

// Applied to each stretch of plain text; input and output are valid UTF-8. All steps together grow
// a text to at most kMaxTextGrowth times its size plus some kilobytes.
using NormalizeStep = std::function<void(std::string& text)>;
constexpr double kMaxTextGrowth = 100;

// `spec` is the value of the key (null: no steps). Supported: Sequence, NFC, NFD, NFKC, NFKD,
// Prepend, Replace, Strip, Lowercase, StripAccents, Nmt, BertNormalizer, Precompiled, ByteLevel.
// Throws LoadError naming `where` for everything else.
std::vector<NormalizeStep> read_normalizer(const Json& spec, const std::string& where);

// Reads a Replace step, which decoders have, too: {"pattern": {"String"|"Regex": ...}, "content":
// ...}. Multiplies `*growth` by the largest factor by which it can grow a text.
NormalizeStep read_replace(const Fields& spec, double* growth);

}  // namespace skiff::text
