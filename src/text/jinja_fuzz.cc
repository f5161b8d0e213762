// Any bytes as a template, over variables of every type, and the prompt cut inside a message: no
// crash, no hang, bounded memory.
#include "text/chat_template_continue.h"
#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff;
  static const OrderedJson variables = OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "Hi <b>"}, {"role": "tool", "content": null},
                       {"role": "assistant", "content": " So "}],
          "n": 3, "f": 1.5, "s": "Grüße", "l": [1, "a", [2]], "d": {"a": {"b": 1}}, "t": true,
          "u": 18446744073709551615, "z": null, "_p": "private"})");
  const auto parsed =
      jinja::Template::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  auto text =
      parsed->render(variables, [] { return std::time_t{0}; },
                     {.steps = 100'000, .bytes = 4 << 20, .value = 1 << 20, .output = 1 << 20});
  if (text) (void)cut_in_final_message(std::move(*text), variables["messages"]);
  return 0;
}
