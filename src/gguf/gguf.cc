#include "gguf/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "base/log.h"
#include "base/utf8.h"

namespace skiff {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxTensors = 1u << 20, kMaxKeys = 1u << 16, kMaxDims = 4;
constexpr uint64_t kMaxAlignment = 1u << 20;
constexpr uint64_t kMaxElements = 1u << 22;  // all arrays have at most so many together

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292}, {20, "IQ4_NL", 32, 18}, {23, "IQ4_XS", 256, 136},
    {30, "BF16", 1, 2},     {39, "MXFP4", 32, 17},
};

// Types that are refused by name: those whose codes point into tables of vectors, those of three
// values, those of integers that no weight has, and those for activations.
struct OtherType {
  uint32_t id;
  std::string_view name;
};
constexpr OtherType kOtherTypes[] = {
    {9, "Q8_1"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"},
    {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},   {28, "F64"},
    {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {40, "NVFP4"},   {41, "Q1_0"},
};

// The kinds of metadata values.
enum Kind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
  kKinds
};

// Thrown inside this file only.
struct Broken {
  std::string what;
};
template <class... Args>
[[noreturn]] void broken(fmt::format_string<Args...> format, Args&&... args) {
  throw Broken{fmt::format(format, std::forward<Args>(args)...)};
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  size_t at() const { return at_; }
  size_t left() const { return std::min(file_.size(), kMaxGgufHeader) - at_; }
  template <class T>
  T number() {
    if (left() < sizeof(T)) broken("the header ends at byte {}", at_);
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string string() {
    const auto length = number<uint64_t>();
    if (length > left()) broken("a text of {} bytes at byte {} does not fit", length, at_);
    std::string text(reinterpret_cast<const char*>(file_.data() + at_), length);
    if (!is_valid_utf8(text)) broken("the text at byte {} is not UTF-8", at_);
    at_ += length;
    return text;
  }
  Json value(uint32_t kind) {
    switch (kind) {
      case kU8:
        return number<uint8_t>();
      case kI8:
        return number<int8_t>();
      case kU16:
        return number<uint16_t>();
      case kI16:
        return number<int16_t>();
      case kU32:
        return number<uint32_t>();
      case kI32:
        return number<int32_t>();
      case kF32:
        return finite(number<float>());
      case kBool:
        return number<uint8_t>() != 0;
      case kString:
        return string();
      case kU64:
        return number<uint64_t>();
      case kI64:
        return number<int64_t>();
      case kF64:
        return finite(number<double>());
      case kArray:
        return array();
      default:
        broken("a value of kind {} at byte {}", kind, at_);
    }
  }

 private:
  static Json finite(double x) {
    if (!std::isfinite(x)) broken("a number that is not finite");
    return x;
  }
  // An element takes a byte or more of the file, and some tens of bytes of memory, so both bound
  // the count. Arrays of arrays are refused.
  Json array() {
    const auto kind = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (kind == kArray || kind >= kKinds) broken("an array of kind {} at byte {}", kind, at_);
    if (count > left()) broken("an array of {} elements at byte {} does not fit", count, at_);
    if (count > elements_left_)
      broken("an array of {} elements at byte {}; all arrays may have {}", count, at_,
             kMaxElements);
    elements_left_ -= count;
    Json::array_t all;
    all.reserve(count);
    for (uint64_t i = 0; i < count; ++i) all.push_back(value(kind));
    return all;
  }

  std::span<const std::byte> file_;
  size_t at_ = 0;
  uint64_t elements_left_ = kMaxElements;
};

[[noreturn]] void refuse_type(const std::string& tensor, uint32_t id) {
  const auto* other = std::ranges::find(kOtherTypes, id, &OtherType::id);
  if (other == std::end(kOtherTypes))
    broken("tensor \"{}\" has the type {}, which is not known", escaped(tensor), id);
  broken(
      "tensor \"{}\" has the type {}, which is not supported; use a file in Q2_K or IQ4_XS or "
      "more, or the safetensors checkpoint",
      escaped(tensor), other->name);
}

GgufTensor read_tensor(Reader& in) {
  GgufTensor tensor{.name = in.string(), .type = {}, .shape = {}};
  const auto dims = in.number<uint32_t>();
  if (dims < 1 || dims > kMaxDims)
    broken("tensor \"{}\" has {} dimensions", escaped(tensor.name), dims);
  int64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const auto size = in.number<uint64_t>();
    if (size < 1 ||
        size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 64 / elements))
      broken("tensor \"{}\" has a dimension of {}", escaped(tensor.name), size);
    elements *= static_cast<int64_t>(size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto id = in.number<uint32_t>();
  const auto* type = std::ranges::find(kTypes, id, &GgufType::id);
  if (type == std::end(kTypes)) refuse_type(tensor.name, id);
  if (tensor.shape.back() % type->elements)
    broken("tensor \"{}\": rows of {} are not whole blocks of {} ({})", escaped(tensor.name),
           tensor.shape.back(), type->elements, type->name);
  tensor.type = type->name;
  tensor.begin = in.number<uint64_t>();
  tensor.end = static_cast<uint64_t>(elements / type->elements * type->bytes);  // its size so far
  return tensor;
}

uint64_t alignment_of(const Json& metadata) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return 32;
  const uint64_t value = found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  if (value == 0 || value > kMaxAlignment || (value & (value - 1)))
    broken("\"general.alignment\" is {}, it must be a power of two",
           found->is_number() ? found->dump() : "no number");
  return value;
}

// Offsets count from the end of the header, rounded up.
void place(GgufHeader& header, size_t header_end, size_t file_size) {
  const uint64_t alignment = alignment_of(header.metadata);
  const uint64_t data = (header_end + alignment - 1) / alignment * alignment;
  std::vector<GgufTensor*> order;
  for (GgufTensor& t : header.tensors) {
    const uint64_t size = t.end;
    if (t.begin % alignment) broken("tensor \"{}\" is not aligned", escaped(t.name));
    if (data > file_size || t.begin > file_size - data || size > file_size - data - t.begin)
      broken("tensor \"{}\" ends beyond the file", escaped(t.name));
    t.begin += data;
    t.end = t.begin + size;
    order.push_back(&t);
  }
  std::ranges::sort(order, {}, &GgufTensor::begin);
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->begin < order[i - 1]->end)
      broken("tensors \"{}\" and \"{}\" overlap", escaped(order[i - 1]->name),
             escaped(order[i]->name));
}

GgufHeader parse(std::span<const std::byte> file) {
  Reader in(file);
  if (in.number<uint32_t>() != kMagic) broken("it does not begin with GGUF");
  const auto version = in.number<uint32_t>();
  if (version != 2 && version != 3) broken("version {}; 2 and 3 are supported", version);
  const auto tensors = in.number<uint64_t>(), keys = in.number<uint64_t>();
  if (tensors > kMaxTensors || keys > kMaxKeys)
    broken("{} tensors and {} keys; at most {} and {}", tensors, keys, kMaxTensors, kMaxKeys);
  GgufHeader header;
  for (uint64_t i = 0; i < keys; ++i) {
    std::string key = in.string();
    const auto kind = in.number<uint32_t>();
    Json value = in.value(kind);
    if (!header.metadata.emplace(key, std::move(value)).second)
      broken("the key \"{}\" is there twice", escaped(key));
  }
  std::set<std::string, std::less<>> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    header.tensors.push_back(read_tensor(in));
    if (!names.insert(header.tensors.back().name).second)
      broken("the tensor \"{}\" is there twice", escaped(header.tensors.back().name));
  }
  place(header, in.at(), file.size());
  return header;
}

}  // namespace

const GgufType* find_gguf_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &GgufType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file) {
  try {
    return parse(file);
  } catch (const Broken& e) {
    return Error{Code::kInvalid, e.what};
  }
}

}  // namespace skiff
