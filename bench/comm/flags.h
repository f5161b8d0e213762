// bench/comm/flags.h -- the command lines of benches over several devices.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace skiff::devices::bench {

// What each flag sets: a number that follows it, or, of a flag that turns something off, false.
using Flags = std::map<std::string_view, std::variant<int*, int64_t*, bool*>>;

// Ends the program with code 2 at a flag that is not among them.
inline void read_flags(int argc, char** argv, const Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end()) {
      fmt::print(stderr, "unknown flag {}\n", argv[i]);
      std::exit(2);
    }
    const auto set = [&]<class T>(T* to) {
      if constexpr (std::is_same_v<T, bool>)
        *to = false;
      else
        *to = static_cast<T>(std::stoll(i + 1 < argc ? argv[++i] : "0"));
    };
    std::visit(set, flag->second);
  }
}

}  // namespace skiff::devices::bench
