// grammar/schema/json_values.h -- values that a schema holds, compared as JSON: members of objects
// by their names, numbers exactly, whatever their types in memory are.
#pragma once
#include <vector>

#include "base/json.h"
#include "grammar/number_range.h"

namespace skiff::grammar {

bool same_value(const OrderedJson& x, const OrderedJson& y);
// What same_value() may compare, in units of one comparison of two names: at most the product of
// the sizes of both.
size_t value_size(const OrderedJson& value);
size_t value_size(const std::vector<const OrderedJson*>& values);

// The exact value of a number. One beyond 2^53 that is a double is spelled with fewer digits than
// it has.
Decimal exact_number(const OrderedJson& number);
// Returns whether a number is a whole double beyond 64 bits. It may have been written as an integer
// that lies beside it, as parsers of JSON keep such integers in doubles.
bool is_beyond_integers(const OrderedJson& number);

}  // namespace skiff::grammar
