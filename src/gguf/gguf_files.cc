#include "gguf/gguf_files.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>

#include "base/load_error.h"
#include "base/log.h"
#include "base/regular_file.h"

namespace skiff {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxParts = 4096, kShown = 5;
constexpr std::string_view kEnd = ".gguf", kOf = "-of-";
constexpr size_t kDigits = 5;

// What the name of a part says: BASE-NNNNN-of-NNNNN.gguf.
struct PartName {
  std::string base;  // with its folder
  size_t number = 0, count = 0;

  std::string of(size_t part) const {
    return fmt::format("{}-{:05}{}{:05}{}", base, part, kOf, count, kEnd);
  }
};

// Takes a number of kDigits digits off the end.
std::optional<size_t> take_number(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kDigits);
  size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, number);
  if (error != std::errc() || end != digits.data() + kDigits) return std::nullopt;
  text.remove_suffix(kDigits);
  return number;
}

bool take(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

std::optional<PartName> part_name(std::string_view path) {
  if (!take(path, kEnd)) return std::nullopt;
  const auto count = take_number(path);
  if (!count || !take(path, kOf)) return std::nullopt;
  const auto number = take_number(path);
  if (!number || !take(path, "-")) return std::nullopt;
  return PartName{std::string(path), *number, *count};
}

// The keys of a part.
struct Split {
  size_t number = 0, count = 1;
  std::optional<uint64_t> tensors;
};

std::optional<uint64_t> count_of(const Json& metadata, const char* key, const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  // Writers store the count of tensors with a sign.
  if (!found->is_number_integer() || (!found->is_number_unsigned() && found->get<int64_t>() < 0))
    fail_load("{}: \"{}\" is {}, it must be a count", path, key, escaped(found->dump(), 40));
  return found->get<uint64_t>();
}

Split split_of(const GgufHeader& header, const std::string& path) {
  Split split;
  split.count = count_of(header.metadata, "split.count", path).value_or(1);
  split.number = count_of(header.metadata, "split.no", path).value_or(0);
  split.tensors = count_of(header.metadata, "split.tensors.count", path);
  if (split.count > kMaxParts)
    fail_load("{}: \"split.count\" is {}, at most {}", path, split.count, kMaxParts);
  if (split.count > 0 && split.number >= split.count)
    fail_load("{}: \"split.no\" is {} of \"split.count\" {}", path, split.number, split.count);
  return split;
}

GgufHeader read_header(const std::string& path) {
  const RegularFile file(path);
  if (file.size() == 0) fail_load("{}: the file is empty", path);
  void* data = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (data == MAP_FAILED) fail_load("{}: cannot be read", path);
  auto header = parse_gguf({static_cast<const std::byte*>(data), file.size()});
  munmap(data, file.size());
  if (!header) fail_load("{}: {}", path, header.error().what);
  return *std::move(header);
}

// The paths of all parts of the model whose first part is `path`.
std::vector<std::string> part_paths(const std::string& path, const Split& split) {
  const auto name = part_name(path);
  if (!name || name->count != split.count || name->number != split.number + 1)
    fail_load(
        "{}: it is part {} of {} (\"split.no\", \"split.count\"), so its name must end in "
        "-{:05}-of-{:05}.gguf; rename the parts",
        path, split.number + 1, split.count, split.number + 1, split.count);
  if (split.number != 0)
    fail_load("{}: it is part {} of {}; name the first one, {}", path, name->number, name->count,
              name->of(1));
  std::vector<std::string> paths;
  std::string missing;
  size_t lacking = 0;
  std::error_code error;
  for (size_t i = 1; i <= name->count; ++i) {
    paths.push_back(name->of(i));
    if (fs::exists(paths.back(), error) || ++lacking > kShown) continue;
    missing += (lacking > 1 ? ", " : "") + fs::path(paths.back()).filename().string();
  }
  if (lacking)
    fail_load("{}: {} of {} parts are missing beside it: {}{}", path, lacking, name->count, missing,
              lacking > kShown ? ", ..." : "");
  return paths;
}

// Appends the tensors of part `number`.
void add_part(GgufModel& model, size_t number, const Split& whole) {
  const std::string& path = model.files[number];
  GgufHeader part = read_header(path);
  const Split split = split_of(part, path);
  if (split.number != number || split.count != whole.count)
    fail_load(
        "{}: \"split.no\" {} and \"split.count\" {}, expected {} and {}: it belongs to another "
        "file",
        path, split.number, split.count, number, whole.count);
  for (GgufTensor& tensor : part.tensors) {
    tensor.file = number;
    model.header.tensors.push_back(std::move(tensor));
  }
}

void check_tensors(const GgufModel& model, const Split& whole) {
  const std::vector<GgufTensor>& tensors = model.header.tensors;
  if (whole.tensors && *whole.tensors != tensors.size())
    fail_load("{}: its {} parts have {} tensors, \"split.tensors.count\" is {}", model.files[0],
              model.files.size(), tensors.size(), *whole.tensors);
  std::set<std::string_view> names;
  for (const GgufTensor& tensor : tensors)
    if (!names.insert(tensor.name).second)
      fail_load("{}: tensor \"{}\" is in another part too", model.files[tensor.file],
                escaped(tensor.name));
}

}  // namespace

std::string gguf_file_of(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.ends_with(kEnd) ? path : "";
  if (fs::exists(fs::path(path) / "config.json", error)) return {};
  std::vector<std::string> found;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == kEnd) found.push_back(it->path().string());
  if (found.empty()) return {};
  std::ranges::sort(found);
  if (found.size() == 1) return found.front();
  const auto first = part_name(found.front());
  for (const std::string& file : found) {
    const auto name = part_name(file);
    if (!first || !name || name->base != first->base || name->count != first->count)
      fail_load("{}: several files *.gguf; name the one to use", path);
  }
  return first->of(1);
}

GgufModel read_gguf(const std::string& path) {
  GgufModel model{.header = read_header(path), .files = {path}};
  const Split split = split_of(model.header, path);
  if (split.count <= 1) return model;
  model.files = part_paths(path, split);
  for (size_t i = 1; i < model.files.size(); ++i) add_part(model, i, split);
  check_tensors(model, split);
  return model;
}

}  // namespace skiff
