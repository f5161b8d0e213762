#include "message/draft_check.h"

#include <fmt/format.h>

namespace skiff {

std::string describe(const DraftCheck& check) {
  return fmt::format("rule {}, candidates {}, window {}, best {}, delta {}, thought {} to {}",
                     static_cast<int>(check.rule), check.candidates, check.window, check.best,
                     check.delta, check.think_begin, check.think_end);
}

}  // namespace skiff
