// serve/openai/fields.h -- the tables of request fields, one file for each kind of field. A new
// field is a new line in one of them.
#pragma once
#include <functional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "serve/openai/params.h"
#include "serve/openai/values.h"

namespace skiff {

enum class Scope { kBoth, kChat, kCompletions };

using FieldReader = std::function<MaybeProblem(const OrderedJson& value, OpenAiCall& call)>;

struct Field {
  std::string_view name;
  Scope scope;
  FieldReader read;  // the value is not null
};

std::vector<Field> sampling_fields();  // how tokens are drawn
std::vector<Field> output_fields();    // where a reply ends and how it is told
std::vector<Field> input_fields();     // how the prompt is made, besides messages and prompt
std::vector<Field> other_fields();     // known fields without effect, and known ones refused

// Null if this endpoint has none of that name.
const Field* find_field(Endpoint endpoint, std::string_view name);

constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;

// Readers that hand the value to `set(call, value)`.
template <class Set>
FieldReader integer_field(int64_t low, int64_t high, Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> MaybeProblem {
    int64_t x = 0;
    if (auto problem = read_integer(value, low, high, x)) return problem;
    set(call, x);
    return std::nullopt;
  };
}

template <class Set>
FieldReader number_field(double low, double high, Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> MaybeProblem {
    double x = 0;
    if (auto problem = read_number(value, low, high, x)) return problem;
    set(call, x);
    return std::nullopt;
  };
}

template <class Set>
FieldReader boolean_field(Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> MaybeProblem {
    bool x = false;
    if (auto problem = read_boolean(value, x)) return problem;
    set(call, x);
    return std::nullopt;
  };
}

template <class Set>
FieldReader string_field(Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> MaybeProblem {
    std::string x;
    if (auto problem = read_string(value, x)) return problem;
    set(call, std::move(x));
    return std::nullopt;
  };
}

template <class Set>
FieldReader token_ids_field(Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> MaybeProblem {
    std::vector<Token> ids;
    if (auto problem = read_token_ids(value, ids)) return problem;
    set(call, std::move(ids));
    return std::nullopt;
  };
}

}  // namespace skiff
