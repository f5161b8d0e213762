#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "weights/name_list.h"

namespace skiff {
namespace {

constexpr size_t kMaxTensors = 1u << 20;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxName = 1024;

// Every dtype of the format.
struct StoredDtype {
  std::string_view name;
  int bits;
  std::optional<DType> dtype = std::nullopt;
};
constexpr StoredDtype kDtypes[] = {
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"F4", 4, DType::kF4E2M1},
    {"I64", 64, DType::kI64},
    {"I32", 32, DType::kI32},
    {"I8", 8, DType::kI8},
    {"U8", 8, DType::kU8},
    {"BOOL", 8},
    {"F8_E5M2", 8},
    {"F8_E8M0", 8},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"I16", 16},
    {"U16", 16},
    {"U32", 32},
    {"U64", 64},
    {"F64", 64},
    {"C64", 64},
};

const StoredDtype* find_dtype(std::string_view name) {
  const auto* found = std::ranges::find(kDtypes, name, &StoredDtype::name);
  return found == std::end(kDtypes) ? nullptr : found;
}

// Takes JSON events straight into entries, so that no tree of the header is ever built. Depth 1
// is the header, 2 a tensor (or __metadata__), 3 its shape or data_offsets.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<TensorEntry> take() { return std::move(tensors_); }
  const std::string& error() const { return error_; }

  bool key(string_t& key) override {
    if (key.size() > kMaxName) return refuse("a name of {} bytes", key.size());
    if (depth_ == 1) {
      if (!names_.insert(key).second) return refuse("duplicate key \"{}\"", escaped(key));
      entry_ = {.name = key, .dtype = {}, .shape = {}};
      has_dtype_ = has_shape_ = has_offsets_ = false;
      field_.clear();
      offsets_.clear();
      return true;
    }
    if (in_metadata()) return true;
    field_ = key;
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ > 2) return misplaced("object");
    return !in_array_ || misplaced("object");
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata()) return finish();
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_array_ || in_metadata()) return misplaced("array");
    if (field_ != "shape" && field_ != "data_offsets") return misplaced("array");
    bool& seen = field_ == "shape" ? has_shape_ : has_offsets_;
    if (seen) return repeated();
    seen = in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (!in_array_) return misplaced("number");
    if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return refuse("tensor \"{}\": {} {} is too large", escaped(entry_.name), field_, n);
    const bool shape = field_ == "shape";
    if ((shape ? entry_.shape.size() : offsets_.size()) >= (shape ? kMaxDims : 2))
      return refuse("tensor \"{}\": too many numbers in {}", escaped(entry_.name), field_);
    if (shape)
      entry_.shape.push_back(static_cast<int64_t>(n));
    else
      offsets_.push_back(n);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ != 2 || in_array_) return misplaced("string");
    if (in_metadata()) return true;
    if (field_ != "dtype") return misplaced("string");
    if (has_dtype_) return repeated();
    if (!safetensors_bits(value))
      return refuse("tensor \"{}\": unknown dtype \"{}\"", escaped(entry_.name),
                    escaped(value, 40));
    has_dtype_ = true;
    entry_.dtype = value;
    return true;
  }
  bool number_integer(number_integer_t n) override {
    return refuse("tensor \"{}\": negative number {}", escaped(entry_.name), n);
  }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse("tensor \"{}\": number {} is not a 63-bit integer", escaped(entry_.name),
                  escaped(text, 40));
  }
  bool null() override { return misplaced("null"); }
  bool boolean(bool) override { return misplaced("boolean"); }
  bool binary(binary_t&) override { return misplaced("binary"); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return refuse("the header is not valid JSON at byte {}", at);
  }

 private:
  template <class... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    error_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool misplaced(std::string_view what) {
    return refuse("unexpected {} in the header near \"{}\"", what, escaped(entry_.name));
  }
  bool repeated() { return refuse("tensor \"{}\": {} given twice", escaped(entry_.name), field_); }
  bool in_metadata() const { return entry_.name == "__metadata__"; }

  bool finish() {
    if (!has_dtype_ || !has_shape_ || offsets_.size() != 2)
      return refuse("tensor \"{}\": dtype, shape and two data_offsets are needed",
                    escaped(entry_.name));
    if (tensors_.size() >= kMaxTensors) return refuse("more than {} tensors", kMaxTensors);
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    tensors_.push_back(std::move(entry_));
    entry_ = {};
    return true;
  }

  int depth_ = 0;
  bool in_array_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string field_;
  std::vector<uint64_t> offsets_;
  TensorEntry entry_;
  std::vector<TensorEntry> tensors_;
  std::unordered_set<std::string> names_;
  std::string error_;
};

Error invalid(std::string what) { return {Code::kInvalid, std::move(what)}; }

// Returns the bytes of dtype x shape, or nothing if they are not a whole number below 2^60.
std::optional<uint64_t> byte_count(const TensorEntry& t) {
  constexpr uint64_t kMax = uint64_t{1} << 60;
  uint64_t elements = 1;
  for (int64_t n : t.shape) {
    const auto dim = static_cast<uint64_t>(n);
    if (dim && elements > kMax / dim) return std::nullopt;
    elements *= dim;
  }
  const auto bits = static_cast<uint64_t>(safetensors_bits(t.dtype));
  if (elements > kMax / bits || elements * bits % 8) return std::nullopt;
  return elements * bits / 8;
}

// Checks that the tensors cover the data section exactly once.
Status check_ranges(std::vector<TensorEntry>& tensors, uint64_t data_bytes) {
  std::ranges::sort(tensors, [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const TensorEntry& t : tensors) {
    const std::string name = escaped(t.name);
    if (t.end < t.begin || t.end > data_bytes)
      return invalid(
          fmt::format("tensor \"{}\": bytes [{}, {}) lie outside of the {} bytes of data "
                      "(is the file truncated?)",
                      name, t.begin, t.end, data_bytes));
    if (byte_count(t) != t.end - t.begin)
      return invalid(fmt::format("tensor \"{}\": {} bytes do not hold {} [{}]", name,
                                 t.end - t.begin, t.dtype, name_list(t.shape)));
    if (t.begin != at)
      return invalid(
          fmt::format("tensor \"{}\": starts at byte {} of the data, {} ends at {}", name, t.begin,
                      t.begin < at ? "but the one before it" : "a gap: the data before it", at));
    at = t.end;
  }
  if (at != data_bytes)
    return invalid(fmt::format("{} bytes of data belong to no tensor", data_bytes - at));
  return ok();
}

}  // namespace

int safetensors_bits(std::string_view dtype) {
  const StoredDtype* found = find_dtype(dtype);
  return found ? found->bits : 0;
}

std::optional<DType> dtype_of_safetensors(std::string_view dtype) {
  const StoredDtype* found = find_dtype(dtype);
  return found ? found->dtype : std::nullopt;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file) {
  uint64_t length = 0;
  if (file.size() < sizeof(length))
    return invalid(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  std::memcpy(&length, file.data(), sizeof(length));
  const uint64_t left = file.size() - sizeof(length);
  if (length < 2 || length > kMaxSafetensorsHeader || length > left)
    return invalid(
        fmt::format("header length {} is not in [2, {}] (is this a safetensors file, and "
                    "complete?)",
                    length, std::min<uint64_t>(left, kMaxSafetensorsHeader)));
  const auto* text = reinterpret_cast<const char*>(file.data()) + sizeof(length);
  if (text[0] != '{') return invalid("the header does not start with '{'");

  HeaderReader reader;
  if (!Json::sax_parse(text, text + length, &reader)) return invalid(reader.error());
  SafetensorsHeader header{.tensors = reader.take()};
  if (Status status = check_ranges(header.tensors, left - length); !status) return status.error();
  for (TensorEntry& t : header.tensors) {
    t.begin += sizeof(length) + length;
    t.end += sizeof(length) + length;
  }
  return header;
}

}  // namespace skiff
