#include "text/post_processor.h"

#include <utility>

namespace skiff::text {
namespace {

constexpr size_t kMaxFrame = 256;

class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}
  TextFrame out;

  void read(const Json& spec) {
    const Fields fields(spec, where_);
    const auto type = fields.need<std::string>("type");
    if (type == "Sequence") {
      for (const Json& child : fields.need<Json::array_t>("processors")) read(child);
    } else if (type == "TemplateProcessing") {
      read_template(fields);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      wrap({token_of(fields, "cls")}, {token_of(fields, "sep")});
    } else if (type != "ByteLevel") {
      fail_load("{} type {} is not supported", where_, type.substr(0, 60));
    }
  }

 private:
  // Each template wraps the result of the one before it.
  void read_template(const Fields& fields) {
    const Fields tokens = fields.child("special_tokens");
    std::vector<int32_t> before, after;
    int texts = 0;
    for (const Json& item : fields.need<Json::array_t>("single")) {
      const Fields part(item, where_ + ": single");
      if (part.has("Sequence")) {
        ++texts;
        continue;
      }
      const auto name = part.child("SpecialToken").need<std::string>("id");
      const auto ids = tokens.child(name).need<std::vector<int32_t>>("ids");
      auto& side = texts == 0 ? before : after;
      side.insert(side.end(), ids.begin(), ids.end());
    }
    if (texts != 1) fail_load("{}: single must have one Sequence, not {}", where_, texts);
    wrap(std::move(before), after);
  }

  // ["text", id]
  int32_t token_of(const Fields& fields, const char* key) const {
    const auto pair = fields.need<Json::array_t>(key);
    if (pair.size() != 2 || !pair[1].is_number_integer())
      fail_load("{}: {} must be a token and its id", where_, key);
    return pair[1].get<int32_t>();
  }

  void wrap(std::vector<int32_t> before, const std::vector<int32_t>& after) {
    before.insert(before.end(), out.before.begin(), out.before.end());
    out.after.insert(out.after.end(), after.begin(), after.end());
    out.before = std::move(before);
    out.given = true;
    if (out.before.size() + out.after.size() > kMaxFrame)
      fail_load("{}: more than {} special tokens", where_, kMaxFrame);
  }

  const std::string& where_;
};

}  // namespace

TextFrame read_post_processor(const Json& spec, const std::string& where) {
  Reader reader(where);
  if (!spec.is_null()) reader.read(spec);
  return std::move(reader.out);
}

}  // namespace skiff::text
