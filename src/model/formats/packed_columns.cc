#include "model/formats/packed_columns.h"

#include <algorithm>
#include <numeric>

#include "base/load_error.h"
#include "base/log.h"
#include "model/stored_numbers.h"

namespace skiff::model {

void settle_order(StoredModule& module, int group) {
  const StoredTensor* tensor = module.of(Role::kOrder);
  if (!tensor || group == 0) return;
  const int64_t in = module.shape.in, groups = blocks_in(in, group);
  std::vector<int32_t> group_of(static_cast<size_t>(in));
  std::vector<int64_t> sizes(static_cast<size_t>(groups));
  for (int64_t i = 0; i < in; ++i) {
    const auto g = stored<int32_t>(*tensor, i);
    if (g < 0 || g >= groups)
      fail_load("tensor \"{}\": column {} is in group {}, there are {}",
                escaped(tensor->entry->name), i, g, groups);
    group_of[static_cast<size_t>(i)] = g;
    ++sizes[static_cast<size_t>(g)];
  }
  for (int64_t g = 0; g < groups; ++g)
    if (sizes[static_cast<size_t>(g)] != std::min<int64_t>(group, in - g * group))
      fail_load("tensor \"{}\": {} columns are in group {}, \"group_size\" is {}",
                escaped(tensor->entry->name), sizes[static_cast<size_t>(g)], g, group);
  if (std::ranges::is_sorted(group_of)) return;
  module.order.resize(static_cast<size_t>(in));
  std::iota(module.order.begin(), module.order.end(), 0);
  std::ranges::stable_sort(module.order, {},
                           [&](int32_t c) { return group_of[static_cast<size_t>(c)]; });
}

}  // namespace skiff::model
