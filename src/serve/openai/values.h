// serve/openai/values.h -- readers of single values of a request body, with the messages for values
// of a wrong kind. They never throw.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "message/request.h"

namespace skiff::openai {

// What is wrong with the value of a field. The text follows the field's name in a sentence.
struct Problem {
  std::string what;
  Code code = Code::kInvalid;
};
using MaybeProblem = std::optional<Problem>;

// The value as an integer: 3.0 is one; 3.5, "3", true and null are not.
std::optional<int64_t> as_integer(const OrderedJson& value);

// Describes the value for an error message: short, whatever a client sent.
std::string described(const OrderedJson& value);

// Each leaves `out` unchanged when it returns a Problem. Bounds are inclusive.
MaybeProblem read_integer(const OrderedJson& value, int64_t low, int64_t high, int64_t& out);
MaybeProblem read_number(const OrderedJson& value, double low, double high, double& out);
MaybeProblem read_boolean(const OrderedJson& value, bool& out);
MaybeProblem read_string(const OrderedJson& value, std::string& out);
// Reads a list of strings; a single string counts as a list of one.
MaybeProblem read_strings(const OrderedJson& value, std::vector<std::string>& out);
// Reads a list of integers in [0, 2^31); the vocabulary is checked later.
MaybeProblem read_token_ids(const OrderedJson& value, std::vector<Token>& out);

}  // namespace skiff::openai
