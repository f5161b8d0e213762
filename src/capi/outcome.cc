#include "capi/outcome.h"

namespace skiff::capi {
namespace {

int status_of(Code code) {
  switch (code) {
    case Code::kInvalid:
      return SKIFF_INVALID;
    case Code::kNotFound:
      return SKIFF_NOT_FOUND;
    case Code::kUnsupported:
      return SKIFF_UNSUPPORTED;
    case Code::kExhausted:
      return SKIFF_BUSY;
    case Code::kCancelled:
      return SKIFF_CLOSED;
    case Code::kInternal:
      break;
  }
  return SKIFF_INTERNAL;
}

}  // namespace

Outcome outcome_of(const Error& error, const std::string& input) {
  const bool names_input = error.field == "input" || error.field == "input_length";
  return {.status = status_of(error.code),
          .what = error.what,
          .field = names_input ? input : error.field};
}

}  // namespace skiff::capi
