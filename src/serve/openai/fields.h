// serve/openai/fields.h -- the tables of request fields, one file for each kind of field. A new
// field is a new line in one of them.
#pragma once
#include <functional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "serve/openai/call_draft.h"
#include "serve/openai/params.h"
#include "serve/openai/values.h"

namespace skiff::openai {

enum class Scope { kBoth, kChat, kCompletions };

using FieldReader = std::function<MaybeProblem(const OrderedJson& value, CallDraft& draft)>;

struct Field {
  std::string_view name;
  Scope scope;
  FieldReader read;  // the value is not null
};

std::vector<Field> sampling_fields();    // how tokens are sampled
std::vector<Field> output_fields();      // where a reply ends and what it contains
std::vector<Field> input_fields();       // how the prompt is built, besides messages and prompt
std::vector<Field> tool_fields();        // tools and reasoning
std::vector<Field> constraint_fields();  // the form of a reply
std::vector<Field> splitting_fields();   // prefill and decode on different servers
std::vector<Field> other_fields();       // fields without effect, and fields that are refused

// Gives the constraint the whitespace that a field of its own asks for. To be called once all
// fields are read, because their order means nothing.
std::optional<Error> set_whitespace(CallDraft& draft);

// Null if this endpoint has no field of that name.
const Field* find_field(Endpoint endpoint, std::string_view name);

constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;

// Readers that check the value and pass it to `set(draft, value)`.
template <class Set>
FieldReader integer_field(int64_t low, int64_t high, Set set) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    int64_t x = 0;
    if (auto problem = read_integer(value, low, high, x)) return problem;
    set(draft, x);
    return std::nullopt;
  };
}

template <class Set>
FieldReader number_field(double low, double high, Set set) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    double x = 0;
    if (auto problem = read_number(value, low, high, x)) return problem;
    set(draft, x);
    return std::nullopt;
  };
}

template <class Set>
FieldReader boolean_field(Set set) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    bool x = false;
    if (auto problem = read_boolean(value, x)) return problem;
    set(draft, x);
    return std::nullopt;
  };
}

template <class Set>
FieldReader string_field(Set set) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    std::string x;
    if (auto problem = read_string(value, x)) return problem;
    set(draft, std::move(x));
    return std::nullopt;
  };
}

template <class Set>
FieldReader token_ids_field(Set set) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    std::vector<Token> ids;
    if (auto problem = read_token_ids(value, ids)) return problem;
    set(draft, std::move(ids));
    return std::nullopt;
  };
}

}  // namespace skiff::openai
