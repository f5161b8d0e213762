// text/chat/fuzz_check_testing.h -- for fuzz targets only: renders a template and ends the program
// where a rendering takes more processor time or memory than its limits promise.
#pragma once
#include <sanitizer/allocator_interface.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "text/chat/chat_template_continue.h"
#include "text/jinja/template.h"

namespace skiff::text {

// The memory that a rendering holds at most, as AddressSanitizer's hooks count it.
class HeapPeak {
 public:
  HeapPeak() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, size_t size) {
          live() += size;
          if (live() > most()) most() = live();
        },
        [](const volatile void* p) {
          if (p) live() -= __sanitizer_get_allocated_size(const_cast<const void*>(p));
        });
    if (installed == 0) std::abort();
    live() = most() = 0;
  }
  size_t bytes() const { return most() > 0 ? static_cast<size_t>(most()) : 0; }

 private:
  static int64_t& live() {
    static int64_t bytes = 0;
    return bytes;
  }
  static int64_t& most() {
    static int64_t bytes = 0;
    return bytes;
  }
};

inline void require(bool kept, const char* what, double value) {
  if (kept) return;
  std::fprintf(stderr, "a rendering takes %g %s\n", value, what);
  std::abort();
}

inline double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline void check_template(const std::string& text) {
  static const OrderedJson variables = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "Hi <b>"}, {"role": "tool", "content": null},
                       {"role": "assistant", "content": " So ", "tool_calls": [{"type": "function",
                        "function": {"name": "f", "arguments": {"x": 1}}}]},
                       {"role": "user", "content": [{"type": "text", "text": "Why?"}]}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
                     "properties": {"x": {"type": "integer"}}}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
          "n": 3, "f": 1.5, "s": "Grüße", "l": [1, "a", [2]], "d": {"a": {"b": 1}}, "t": true,
          "u": 18446744073709551615, "z": null, "_p": "private"})");
  constexpr double kSeconds = 2;
  jinja::Limits limits;
  limits.steps = 1'000'000;
  limits.bytes = 32 << 20;
  limits.value = limits.output = 4 << 20;
  const HeapPeak peak;
  const double start = processor_seconds();
  const auto parsed = jinja::Template::parse(text);
  if (parsed) {
    auto out = parsed->render(
        variables, [] { return std::time_t{0}; }, limits);
    if (out) (void)cut_in_final_message(std::move(*out), variables["messages"]);
  }
  const double seconds = processor_seconds() - start;
  require(seconds < kSeconds, "seconds", seconds);
  const size_t allowed = 3 * limits.bytes + 1024 * text.size();
  require(peak.bytes() < allowed, "bytes", static_cast<double>(peak.bytes()));
}

}  // namespace skiff::text
