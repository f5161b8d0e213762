// `skiff tokenize`: text to ids, ids to text, and conversations to prompts.
#include <iostream>

#include "apps/commands.h"
#include "base/json.h"
#include "base/load_error.h"

namespace skiff {
namespace {

Json parse_line(const std::string& line, size_t number) {
  auto parsed = parse_json(line);
  if (!parsed) fail_load("line {}: {}", number, parsed.error().what);
  return std::move(*parsed);
}

std::string encode_line(const Tokenizer& tokenizer, const Json& value, size_t number,
                        bool special) {
  if (!value.is_string()) fail_load("line {}: expected a JSON string", number);
  const auto ids = tokenizer.encode(value.get_ref<const std::string&>(),
                                    {.add_special = special, .parse_special = true});
  return Json(ids).dump();
}

std::string decode_line(const Tokenizer& tokenizer, const Json& value, size_t number,
                        bool special) {
  std::vector<int32_t> ids;
  if (!value.is_array()) fail_load("line {}: expected an array of token ids", number);
  for (const Json& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size())
      fail_load("line {}: {} is not a token id in [0, {})", number, id.dump(),
                tokenizer.vocab_size());
    ids.push_back(id.get<int32_t>());
  }
  return Json(tokenizer.decode(ids, /*skip_special=*/!special)).dump(-1, ' ', false);
}

}  // namespace

int run_tokenize(const Args& args) {
  const std::string folder = model_folder(args);
  if (args.given("chat")) return render_conversation(args, folder);
  const auto tokenizer = need_tokenizer(args, folder);
  const bool special = args.on("special");
  const auto convert = args.on("decode") ? decode_line : encode_line;
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number)
    fmt::print("{}\n", convert(*tokenizer, parse_line(line, number), number, special));
  return 0;
}

}  // namespace skiff
