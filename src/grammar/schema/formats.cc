#include "grammar/schema/formats.h"

#include <fmt/format.h>

#include <string>

#include "grammar/regex.h"

namespace skiff::grammar {
namespace {

// RFC 3339; years from 0001, no leap seconds.
std::string date() {
  const std::string year = "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])";
  const std::string leap =
      "(?:(?:[1-9]\\d|0[1-9])(?:0[48]|[2468][048]|[13579][26])|00(?:0[48]|[2468][048]|[13579][26])"
      "|(?:0[48]|[2468][048]|[13579][26])00)";
  const std::string days =
      "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)"
      "|02-(?:0[1-9]|1\\d|2[0-8]))";
  return fmt::format("(?:{}-{}|{}-02-29)", year, days, leap);
}

std::string time() {
  return "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]"
         "\\d)";
}

// RFC 3339, appendix A.
std::string duration() {
  const std::string clock = "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
  const std::string dates = "(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)";
  return fmt::format("P(?:{}(?:{})?|{}|\\d+W)", dates, clock, clock);
}

std::string ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return fmt::format("{0}\\.{0}\\.{0}\\.{0}", byte);
}

// RFC 4291, 2.2: eight groups, or fewer with one "::"; the last two may be an IPv4 address.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last = fmt::format("(?:{0}:{0}|{1})", group, ipv4());
  std::string out = fmt::format("(?:{}:){{6}}{}", group, last);
  for (int before = 0; before <= 7; ++before) {
    const std::string left =
        before == 0 ? "" : fmt::format("{0}(?::{0}){{{1}}}", group, before - 1);
    const int after = 7 - before;  // groups that may follow, at most
    std::string right =
        after >= 1 ? fmt::format("(?:{0}(?::{0}){{0,{1}}})?", group, after - 1) : "";
    out += fmt::format("|{}::{}", left, right);
    if (after >= 2) out += fmt::format("|{}::(?:{}:){{0,{}}}{}", left, group, after - 2, ipv4());
  }
  return fmt::format("(?:{})", out);
}

std::string label() { return "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"; }
std::string hostname() { return fmt::format("{0}(?:\\.{0})*", label()); }

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  return fmt::format("{0}(?:\\.{0})*@{1}(?:\\.{1})+", atom, label());
}

// RFC 3986, without addresses in brackets.
std::string uri() {
  const std::string plain = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";
  const std::string pchar = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string query = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*";
  const std::string authority = fmt::format("(?:(?:{0}|:)*@)?{0}+(?::\\d{{1,5}})?", plain);
  return fmt::format(
      "[A-Za-z][A-Za-z0-9+.-]*:(?://{0}(?:/{1}*)*|/(?:{1}+(?:/{1}*)*)?|{1}+(?:/{1}*)*)(?:\\?{2})?"
      "(?:#{2})?",
      authority, pchar, query);
}

std::string uuid() { return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"; }
std::string date_time() { return date() + "T" + time(); }

struct Format {
  std::string_view name;
  std::string (*pattern)();
  uint32_t max_length = kEndless;
};

constexpr Format kFormats[] = {
    {"date-time", date_time}, {"date", date}, {"time", time}, {"duration", duration},
    {"email", email, 254},    {"ipv4", ipv4}, {"ipv6", ipv6}, {"hostname", hostname, 253},
    {"uuid", uuid},           {"uri", uri},
};

const Format* find(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace

bool is_format(std::string_view name) { return find(name) != nullptr; }

ExprId format_strings(std::string_view name, Speller& speller) {
  const Format* format = find(name);
  ExprSet& exprs = speller.exprs();
  ExprId out = Regex::parse(format->pattern()).whole(speller);
  const ExprId any = speller.any();
  if (format->max_length != kEndless)
    out = exprs.both({out, exprs.repeat(any, 0, format->max_length)});
  if (name != "hostname") return out;
  // A label with hyphens in the third and fourth place announces an encoding.
  const ExprId label = exprs.repeat(speller.one(Characters{{'.', '.'}}.inverse()), 2, 2);
  const ExprId encoded = exprs.concat(
      {exprs.optional(exprs.concat(exprs.repeat(any, 0, kEndless), exprs.literal("."))), label,
       exprs.literal("--"), exprs.repeat(any, 0, kEndless)});
  return exprs.both({out, exprs.negate(encoded)});
}

}  // namespace skiff::grammar
