// capi/outcome.h -- what a function of the C interface answers with: a skiff_status, and for a
// failure its reason and the field at fault.
#pragma once
#include <string>

#include "base/result.h"
#include "capi/skiff.h"

namespace skiff::capi {

struct Outcome {
  int status = SKIFF_OK;
  std::string what = {};
  std::string field = {};

  bool ok() const { return status == SKIFF_OK; }
};

// `input` is the request's name for its prompt, which stands for the fields "input" and
// "input_length" of an Error.
Outcome outcome_of(const Error& error, const std::string& input = "");

}  // namespace skiff::capi
