#include "model/quantization.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

struct Method {
  std::string_view name;
  Quantization (*read)(const Fields& fields);
};
constexpr Method kMethods[] = {
    {"compressed-tensors", read_compressed_tensors},
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"auto-round", read_auto_round},
    {"intel/auto-round", read_auto_round},
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_fbgemm_fp8},
    {"modelopt", read_modelopt},
    {"bitsandbytes", read_bitsandbytes},
    {"fastdeploy", read_fastdeploy},
};

// Files beside config.json in which older writers put the same object.
struct SideFile {
  const char* name;
  std::string_view key;     // names the object in the file; empty: the whole file
  std::string_view method;  // where the object names none
};
constexpr SideFile kSideFiles[] = {
    {"hf_quant_config.json", "quantization", "modelopt"},
    {"quantize_config.json", "", "gptq"},
    {"quant_config.json", "", "awq"},
};

constexpr JsonLimits kLimits = {.max_bytes = 16u << 20, .max_depth = 16};

// It is told by its keys, and has files of its own beside config.json.
constexpr std::string_view kPaddleNlp = "paddlenlp";

std::string method_of(const Fields& fields, std::string_view fallback) {
  const std::string silent = fields.get<std::string>("method", std::string(fallback));
  auto method = fields.get<std::string>("quant_method", silent);
  if (!method.empty()) return method;
  if (fields.get("load_in_8bit", false) || fields.get("load_in_4bit", false)) return "bitsandbytes";
  if (is_fastdeploy(fields)) return "fastdeploy";
  if (is_paddlenlp(fields)) return std::string(kPaddleNlp);
  if (fields.has("bits") && fields.has("group_size"))
    fail_load(
        "{}: missing key \"quant_method\"; checkpoints of MLX lack it, which are not supported: "
        "use "
        "the bf16 checkpoint, or one in another format",
        fields.where());
  fail_load("{}: missing key \"quant_method\"", fields.where());
}

[[noreturn]] void refuse_method(const Fields& fields, const std::string& method) {
  std::vector<std::string_view> known;
  for (const Method& m : kMethods) known.push_back(m.name);
  fail_load(
      "{}: \"quant_method\" {} is not supported; supported are {}: convert the checkpoint to "
      "compressed-tensors, or use the bf16 one",
      fields.where(), escaped(method, 60), name_list(known));
}

Quantization read_method(const Fields& fields, const std::string& dir, const std::string& method) {
  if (method == kPaddleNlp && is_paddlenlp(fields)) return read_paddlenlp(fields, dir);
  const auto* found = std::ranges::find(kMethods, method, &Method::name);
  if (found == std::end(kMethods)) refuse_method(fields, method);
  return found->read(fields);
}

Quantization read(const Fields& fields, const std::string& dir, std::string_view fallback = {}) {
  const std::string method = method_of(fields, fallback);
  Quantization made = read_method(fields, dir, method);
  made.method = made.formats.empty() ? "" : method;
  made.where = fields.where();
  return made;
}

// A key that decides what numbers mean, and its other name.
struct SharedKey {
  std::string_view name, also = {};

  // Returns the name that the object has, or nothing.
  std::string_view of(const Fields& fields) const {
    if (fields.has(name)) return name;
    return !also.empty() && fields.has(also) ? also : std::string_view();
  }
};
constexpr SharedKey kSharedKeys[] = {
    {"bits", "w_bit"}, {"group_size", "q_group_size"}, {"desc_act"}, {"sym"}, {"version"},
    {"zero_point"},    {"checkpoint_format"}};

// Programs write names of layouts in letters of either case.
bool agree(const Json& one, const Json& other) {
  if (!one.is_string() || !other.is_string()) return one == other;
  return lower(one.get<std::string>()) == lower(other.get<std::string>());
}

// Throws if a file beside config.json contradicts it.
void check_agreement(const Fields& config, const Fields& file) {
  for (const SharedKey& key : kSharedKeys) {
    const std::string_view here = key.of(config), there = key.of(file);
    if (here.empty() || there.empty()) continue;
    const Json &one = config.json().at(here), &other = file.json().at(there);
    if (!agree(one, other))
      fail_load("{}: \"{}\" is {}, but {} says \"{}\" {}; correct one of the files", config.where(),
                here, one.dump().substr(0, 40), file.where(), there, other.dump().substr(0, 40));
  }
}

}  // namespace

// The rules of modules that were asked for before: each is matched once, and what all matches cost
// is bounded.
struct Quantization::Found {
  std::mutex mutex;
  std::unordered_map<std::string, size_t> rules;
  MatchBudget budget;
};

Quantization::Quantization() : plain_(plain_format()), found_(std::make_shared<Found>()) {}

size_t Quantization::rule_of(std::string_view module) const {
  const std::scoped_lock lock(found_->mutex);
  const std::string name(module);
  if (const auto known = found_->rules.find(name); known != found_->rules.end())
    return known->second;
  const auto rule = std::ranges::find_if(
      rules, [&](const LayerRule& r) { return r.pattern.matches(module, found_->budget); });
  return found_->rules[name] = static_cast<size_t>(rule - rules.begin());
}

FormatList Quantization::formats_of(std::string_view module) const {
  FormatList list;
  if (const size_t rule = rule_of(module); rule < rules.size())
    for (const size_t i : rules[rule].formats) list.push_back(&formats[i]);
  if (std::ranges::none_of(list, &StoredFormat::alone)) list.push_back(&plain_);
  return list;
}

FormatList Quantization::formats_of_table(std::string_view module) const {
  FormatList list = formats_of(module);
  std::erase_if(list, [](const StoredFormat* f) { return f->quantized() && !f->tables; });
  return list;
}

Quantization read_quantization(const std::string& dir, const Fields& config) {
  std::optional<Fields> stated;
  for (const std::string_view key : {"quantization_config", "compression_config"})
    if (config.has(key)) stated = config.child(key);
  if (config.has("text_config") && !stated) {
    const Fields text = config.child("text_config");
    if (text.has("quantization_config")) stated = text.child("quantization_config");
  }
  for (const SideFile& side : kSideFiles) {
    const std::string path = (fs::path(dir) / side.name).string();
    if (!fs::exists(path)) continue;
    const Json json = read_json_file(path, kLimits);
    const Fields file(json, path);
    const Fields object = side.key.empty() ? file : file.child(side.key);
    if (!stated) return read(object, dir, side.method);
    check_agreement(*stated, object);
  }
  return stated ? read(*stated, dir) : Quantization{};
}

void refuse_unknown_keys(const Fields& fields, std::initializer_list<std::string_view> known) {
  for (const auto& item : fields.json().items())
    if (std::ranges::find(known, std::string_view(item.key())) == known.end())
      fail_load("{}: unknown key \"{}\"; it may change what the weights mean", fields.where(),
                escaped(item.key(), 60));
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

void add_plain_layers(Quantization& quantization, const Fields& fields, std::string_view key,
                      PatternKind kind) {
  for (const std::string& name : fields.get<std::vector<std::string>>(key, {}))
    quantization.rules.push_back(
        {NamePattern(kind, name, fmt::format("{}: {}", fields.where(), key)), {}});
}

}  // namespace skiff::model
