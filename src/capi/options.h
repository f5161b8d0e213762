// capi/options.h -- the options of an engine as JSON become the words of a command line, so that
// the program's own table of flags reads and checks them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::capi {

constexpr size_t kMaxOptions = 1 << 20;  // bytes

// {"max_num_seqs": 16, "api": ["a", "b"]} becomes --max_num_seqs=16 --api=a --api=b. null stands
// for the default and is left out; an object is the text of a flag whose value is JSON.
Result<std::vector<std::string>> option_words(std::string_view json);

}  // namespace skiff::capi
