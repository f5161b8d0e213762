// engine/side_by_side.h -- starts things that wait for each other while they start: ranks of a
// model, replicas that share experts.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

namespace skiff::engine {

// Calls work(i) for each i below `count`, all at the same time, the first on the calling thread,
// and returns when all have returned. Where one throws, `failed` is called on its thread with i and
// the reason, so that the others need not wait for it. Throws what the first of them, by number,
// has thrown of itself; only where there is none, the comm::GroupEnded that the end of the group
// made others throw.
void side_by_side(size_t count, const std::function<void(size_t)>& work,
                  const std::function<void(size_t, const std::string& why)>& failed);

}  // namespace skiff::engine
