#include "serve/control/abort_body.h"

#include <fmt/format.h>

namespace skiff::control {
namespace {

constexpr size_t kMaxNames = 4096, kMaxName = 256;

Error invalid(const char* field, std::string what) {
  return {Code::kInvalid, std::move(what), field};
}

}  // namespace

Result<service::AbortWish> read_abort(const OrderedJson& body, const char* list) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  service::AbortWish wish;
  if (const auto all = body.find("abort_all"); all != body.end() && !all->is_null()) {
    if (!all->is_boolean()) return invalid("abort_all", "abort_all must be true or false");
    wish.all = all->get<bool>();
  }
  const auto names = body.find(list);
  if (names == body.end() || names->is_null()) {
    if (wish.all) return wish;
    return Error{
        Code::kNotFound,
        fmt::format("{} is required: a list of request ids (or \"abort_all\": true)", list), list};
  }
  if (!names->is_array() || names->size() > kMaxNames)
    return invalid(list, fmt::format("{} must be a list of at most {} ids", list, kMaxNames));
  for (const OrderedJson& name : *names) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
        name.get_ref<const std::string&>().size() > kMaxName)
      return invalid(list, fmt::format("{} must hold strings of 1 to {} bytes", list, kMaxName));
    wish.ids.push_back(name.get<std::string>());
  }
  return wish;
}

}  // namespace skiff::control
