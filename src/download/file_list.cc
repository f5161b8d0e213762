#include "download/file_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"

namespace skiff::download {
namespace {

constexpr size_t kMaxFiles = 1 << 16;
constexpr JsonLimits kLimits{.max_bytes = 64u << 20};

Error invalid(std::string what) { return {Code::kInvalid, std::move(what), "mirror"}; }

Error unsafe(std::string_view name) {
  std::string shown;
  for (const char c : name.substr(0, 100)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return invalid(
      fmt::format("the mirror lists a file \"{}\", which is no name inside a folder", shown));
}

std::optional<Error> check(const std::vector<RemoteFile>& files) {
  if (files.size() > kMaxFiles)
    return invalid(fmt::format("the mirror lists more than {} files", kMaxFiles));
  std::set<std::string_view> names;
  for (const RemoteFile& file : files) {
    if (!is_safe_name(file.name)) return unsafe(file.name);
    if (!names.insert(file.name).second)
      return invalid(fmt::format("the mirror lists {} twice", file.name));
  }
  for (const std::string_view name : names)
    for (size_t at = name.find('/'); at != std::string_view::npos; at = name.find('/', at + 1))
      if (names.contains(name.substr(0, at)))
        return invalid(
            fmt::format("the mirror lists {} as a file and as a folder", name.substr(0, at)));
  return std::nullopt;
}

const std::string* text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get_ptr<const std::string*>()
                                                     : nullptr;
}

// The strongest checksum that the entry has.
Checksum checksum_of(const Json& entry) {
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object())
    for (const char* key : {"sha256", "oid"})
      if (const std::string* hex = text_of(*lfs, key))
        if (auto sum = Checksum::parse(Checksum::Kind::kSha256, *hex)) return *sum;
  if (const std::string* hex = text_of(entry, "blobId"))
    if (auto sum = Checksum::parse(Checksum::Kind::kGitSha1, *hex)) return *sum;
  return {};
}

}  // namespace

bool is_safe_name(std::string_view name) {
  constexpr size_t kMaxName = 1024, kMaxPart = 255;
  if (name.empty() || name.size() > kMaxName || name.front() == '/' || name.back() == '/')
    return false;
  const auto good = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '\\' && c != ':';
  };
  if (!std::ranges::all_of(name, good)) return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPart) return false;
    begin = end + 1;
  }
  return true;
}

bool matches(std::string_view pattern, std::string_view name) {
  // The last '*' and what it has taken so far, to take one character more where the rest fails.
  const auto fits = [&](std::string_view text) {
    size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
    while (t < text.size()) {
      if (p < pattern.size() && pattern[p] == '*') {
        star = p++;
        taken = t;
      } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
        ++p, ++t;
      } else if (star != std::string_view::npos) {
        p = star + 1;
        t = ++taken;
      } else {
        return false;
      }
    }
    return pattern.find_first_not_of('*', p) == std::string_view::npos;
  };
  return fits(name) || fits(name.substr(name.rfind('/') + 1));
}

Result<std::vector<RemoteFile>> read_hub_listing(std::string_view json) {
  const auto listing = parse_json(json, kLimits);
  if (!listing) return invalid("the mirror's list of files is no JSON: " + listing.error().what);
  if (!(*listing).is_object() || !(*listing).contains("siblings") ||
      !(*listing)["siblings"].is_array())
    return invalid("the mirror's answer has no list \"siblings\"");
  std::vector<RemoteFile> files;
  for (const Json& entry : (*listing)["siblings"]) {
    const std::string* name = entry.is_object() ? text_of(entry, "rfilename") : nullptr;
    if (!name) return invalid("the mirror lists a file without a name");
    RemoteFile file{.name = *name, .size = {}, .checksum = checksum_of(entry)};
    if (const auto size = entry.find("size"); size != entry.end() && size->is_number_unsigned())
      file.size = size->get<uint64_t>();
    files.push_back(std::move(file));
  }
  if (auto error = check(files)) return *error;
  return files;
}

Result<std::vector<RemoteFile>> read_md5_list(std::string_view text) {
  std::vector<RemoteFile> files;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t colon = line.rfind(':');
    if (colon == std::string_view::npos)
      return invalid(fmt::format("line {} of the mirror's file_list.txt is not FILE:MD5", number));
    const auto sum = Checksum::parse(Checksum::Kind::kMd5, line.substr(colon + 1));
    if (!sum)
      return invalid(
          fmt::format("line {} of the mirror's file_list.txt has no MD5 of 32 digits", number));
    files.push_back({.name = std::string(line.substr(0, colon)), .size = {}, .checksum = *sum});
    if (files.size() > kMaxFiles) break;
  }
  if (auto error = check(files)) return *error;
  return files;
}

Result<std::vector<RemoteFile>> read_shard_index(std::string_view json) {
  const auto index = parse_json(json, kLimits);
  if (!index) return invalid("model.safetensors.index.json is no JSON: " + index.error().what);
  if (!(*index).is_object() || !(*index).contains("weight_map") ||
      !(*index)["weight_map"].is_object())
    return invalid("model.safetensors.index.json has no \"weight_map\"");
  std::set<std::string> names;
  for (const Json& shard : (*index)["weight_map"]) {
    if (!shard.is_string())
      return invalid("model.safetensors.index.json names no file of a weight");
    names.insert(shard.get<std::string>());
  }
  std::vector<RemoteFile> files;
  for (const std::string& name : names) files.push_back({.name = name, .size = {}, .checksum = {}});
  if (auto error = check(files)) return *error;
  return files;
}

}  // namespace skiff::download
