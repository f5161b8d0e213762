#include "grammar/schema/document.h"

#include <charconv>
#include <set>

namespace skiff::grammar {
namespace {

OrderedJson parsed(std::string_view text, size_t max_bytes) {
  constexpr int kMaxDepth = 64;
  constexpr size_t kMaxKeys = 5000;
  auto out = parse_ordered_json(
      text, {.max_bytes = max_bytes, .max_depth = kMaxDepth, .max_keys = kMaxKeys});
  if (!out) refuse_malformed("the schema is not valid JSON: {}", out.error().what);
  return std::move(*out);
}

bool hex(std::string_view two, unsigned* out) {
  const auto got = std::from_chars(two.data(), two.data() + two.size(), *out, 16);
  return two.size() == 2 && got.ptr == two.data() + 2;
}

// Undoes %xx, then ~1 and ~0.
std::string unescaped(std::string_view token) {
  std::string plain, out;
  for (size_t i = 0; i < token.size(); ++i) {
    unsigned value = 0;
    if (token[i] == '%' && hex(token.substr(i + 1, 2), &value)) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += token[i];
    }
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool escape = plain[i] == '~' && i + 1 < plain.size();
    if (escape && (plain[i + 1] == '0' || plain[i + 1] == '1'))
      out += plain[++i] == '0' ? '~' : '/';
    else
      out += plain[i];
  }
  return out;
}

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

// Puts the way from `at` to `place` in front of `path`, which is written on the way back.
bool find(Node at, Node place, std::string& path) {
  if (at == place) return true;
  if (at->is_object()) {
    for (const auto& [key, value] : at->get_ref<const OrderedJson::object_t&>())
      if (find(&value, place, path)) return path.insert(0, "/" + escaped(key)), true;
  } else if (at->is_array()) {
    for (size_t i = 0; i < at->size(); ++i)
      if (find(&(*at)[i], place, path)) return path.insert(0, fmt::format("/{}", i)), true;
  }
  return false;
}

}  // namespace

Node member_of(Node object, std::string_view key) {
  if (!object->is_object()) return nullptr;
  for (const auto& [name, value] : object->get_ref<const OrderedJson::object_t&>())
    if (name == key) return &value;
  return nullptr;
}

Document::Document(std::string_view text, size_t max_bytes)
    : num_bytes_(text.size()), json_(parsed(text, max_bytes)) {}

std::string Document::pointer(Node place) const {
  std::string path;
  return find(root(), place, path) ? path : "";
}

std::string Document::pointer(const Nodes& schemas, std::string_view keyword) const {
  Nodes left(schemas.rbegin(), schemas.rend());  // the next one is the last
  std::set<Node> seen;
  while (!left.empty()) {
    const Node at = left.back();
    left.pop_back();
    if (!at->is_object() || !seen.insert(at).second) continue;
    if (member_of(at, keyword)) return pointer(at) + "/" + std::string(keyword);
    for (const std::string_view applicator : {"oneOf", "anyOf", "allOf"})
      if (const Node branches = member_of(at, applicator); branches && branches->is_array())
        for (size_t i = branches->size(); i-- > 0;) left.push_back(&(*branches)[i]);
    if (const Node reference = member_of(at, "$ref"); reference && reference->is_string())
      left.push_back(resolve(reference->get<std::string>(), at));
  }
  return schemas.empty() ? "" : pointer(schemas.front());
}

Node Document::resolve(const std::string& reference, Node at) const {
  const auto fail = [&](std::string_view why) {
    throw Refusal(fmt::format("$ref \"{}\" {}", reference.substr(0, 200), why),
                  pointer(at) + "/$ref");
  };
  if (reference.empty() || reference[0] != '#')
    fail("leads out of the schema; only pointers such as #/$defs/name are followed");
  std::string_view rest = std::string_view(reference).substr(1);
  if (!rest.empty() && rest[0] != '/')
    fail("is an anchor; only pointers such as #/$defs/name are followed");
  Node place = root();
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string token = unescaped(rest.substr(0, end));
    rest.remove_prefix(end);
    Node next = member_of(place, token);
    if (place->is_array()) {
      size_t index = 0;
      const auto got = std::from_chars(token.data(), token.data() + token.size(), index);
      if (got.ec == std::errc() && got.ptr == token.data() + token.size() && index < place->size())
        next = &(*place)[index];
    }
    if (!next) fail("names nothing in the schema");
    if (const Node id = member_of(next, "$id"); id && id->is_string())
      fail("leads into a schema with an $id of its own, which is not supported");
    place = next;
  }
  return place;
}

}  // namespace skiff::grammar
