// serve/openai/values.h -- single values of a request body: what each kind must look like, and what
// is said of one that does not. Never throws.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "message/request.h"

namespace skiff {

// What is wrong with the value of a field; follows the field's name in a sentence.
struct Problem {
  std::string what;
  Code code = Code::kInvalid;
};
using MaybeProblem = std::optional<Problem>;

// An integer as JSON has them; 3.0 is one, 3.5, "3", true and null are not.
std::optional<int64_t> as_integer(const OrderedJson& value);

// The value as an error tells it: short, whatever a client sent.
std::string told(const OrderedJson& value);

// Each leaves `out` alone when it returns a Problem. Bounds are inclusive.
MaybeProblem read_integer(const OrderedJson& value, int64_t low, int64_t high, int64_t& out);
MaybeProblem read_number(const OrderedJson& value, double low, double high, double& out);
MaybeProblem read_boolean(const OrderedJson& value, bool& out);
MaybeProblem read_string(const OrderedJson& value, std::string& out);
// One string counts as a list of one.
MaybeProblem read_strings(const OrderedJson& value, std::vector<std::string>& out);
// A list of integers in [0, 2^31); whether a vocabulary has them is asked later.
MaybeProblem read_token_ids(const OrderedJson& value, std::vector<Token>& out);

}  // namespace skiff
