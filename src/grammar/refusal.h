// grammar/refusal.h -- how the front ends say that a constraint cannot be honoured. Thrown inside
// this room only; compile() makes an Error of it.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/result.h"

namespace skiff::grammar {

struct Refusal : std::runtime_error {
  Refusal(const std::string& what, std::string where = {}, Code code = Code::kUnsupported)
      : std::runtime_error(what), where(std::move(where)), code(code) {}
  std::string where;  // a JSON pointer into a schema or tag; empty where there is none
  Code code;          // kUnsupported, or kInvalid for what nobody could honour
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> form, Args&&... args) {
  throw Refusal(fmt::format(form, std::forward<Args>(args)...));
}

// The constraint is malformed.
template <class... Args>
[[noreturn]] void refuse_malformed(fmt::format_string<Args...> form, Args&&... args) {
  throw Refusal(fmt::format(form, std::forward<Args>(args)...), {}, Code::kInvalid);
}

}  // namespace skiff::grammar
