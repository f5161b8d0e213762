#include "comm/call.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace skiff::comm {
namespace {

std::string text(const Call& call) {
  constexpr std::array<std::string_view, 6> kNames = {"all_reduce", "reduce_add_norm", "all_gather",
                                                      "least",      "dispatch",        "combine"};
  return fmt::format("{} of [{}, {}] {}", kNames[static_cast<size_t>(call.kind)], call.rows,
                     call.cols, name(call.dtype));
}

}  // namespace

std::string describe_apart(const Call& first, const Call& other, int rank) {
  return fmt::format("ranks are at different places: rank 0 does {}, rank {} {}", text(first), rank,
                     text(other));
}

}  // namespace skiff::comm
