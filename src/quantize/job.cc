#include "quantize/job.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/load_error.h"
#include "base/log.h"
#include "model/pooling.h"
#include "quantize/folder_writer.h"
#include "quantize/layer_job.h"
#include "quantize/readback.h"
#include "quantize/shift.h"

namespace skiff::quantize {
namespace {

Stream embedded(const ModelFile& file, const std::vector<Sequence>& sequences) {
  const StoredTensor& table = file.embedding();
  const int64_t hidden = file.spec().hidden;
  Stream stream;
  for (const Sequence& sequence : sequences) {
    Matrix& rows = stream.emplace_back(0, hidden);
    for (const int32_t token : sequence.tokens)
      rows.append_rows(read_floats(table, token * hidden, hidden).data(), 1);
  }
  return stream;
}

NewTensor copied(const StoredTensor& tensor) {
  return {.name = tensor.entry->name,
          .dtype = tensor.entry->dtype,
          .shape = tensor.entry->shape,
          .data = {tensor.bytes.begin(), tensor.bytes.end()}};
}

NewTensor rewritten(const StoredTensor& like, std::string name, std::vector<int64_t> shape,
                    const std::vector<float>& values) {
  const std::string dtype = like.entry->dtype == kFloat8 ? "BF16" : like.entry->dtype;
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = std::move(shape),
          .data = float_bytes(values, dtype_of_safetensors(dtype).value())};
}

constexpr std::string_view kWeight = ".weight";

std::string module_of(std::string_view tensor) {
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return std::string(tensor);
}

// Largest magnitudes of keys and values, for each KV head.
struct KvRange {
  std::vector<float> keys, values;

  static void add(Tensor x, int64_t head_dim, std::vector<float>& largest) {
    largest.resize(static_cast<size_t>(x.cols() / head_dim));
    for (int64_t r = 0; r < x.rows(); ++r)
      for (int64_t c = 0; c < x.cols(); ++c) {
        float& most = largest[static_cast<size_t>(c / head_dim)];
        most = std::max(most, std::abs(x.row<float>(r)[c]));
      }
  }
};

class Quantizer {
 public:
  Quantizer(const ModelFile& file, const Settings& settings, const Data& data, const Job& job,
            Ops& ops)
      : file_(file),
        settings_(settings),
        data_(data),
        job_(job),
        ops_(ops),
        writer_(job.out, job.shard_bytes) {}

  Report run() {
    const int layers = static_cast<int>(file_.spec().layers.size());
    copy_others();
    calibration_ = embedded(file_, data_.calibration);
    before_ = after_ = embedded(file_, data_.heldout);
    for (int i = 0; i < layers; ++i) {
      layer(i);
      if (job_.progress) job_.progress(static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(layers));
    }
    if (!data_.heldout.empty()) report_.quality = measure();
    report_.bytes_before = file_.checkpoint().total_bytes();
    report_.bytes_after = writer_.tensor_bytes();
    writer_.close_tensors();
    writer_.copy_companions(file_.dir());
    copy_pooling();
    write_config();
    if (settings_.layout->tables)
      for (const TextFile& file : settings_.layout->tables(about_))
        writer_.write_text(file.name, file.text);
    check_written(writer_.folder().string(), digests_);
    writer_.finish();
    return report_;
  }

 private:
  // Writes a tensor as the layout has it.
  void put(NewTensor tensor) {
    const Layout& layout = *settings_.layout;
    const bool matrix = tensor.shape.size() == 2 && tensor.name.ends_with(kWeight) &&
                        tensor.name != file_.embedding().entry->name;
    tensor.name = layout.name_of(tensor.name, file_.spec());
    writer_.add(layout.rename && matrix ? transposed(std::move(tensor)) : tensor);
  }

  // What belongs to no layer, and what no one uses, such as a module for drafts. Its matrices are
  // named as plain: other readers take every linear layer that is not for a rounded one.
  void copy_others() {
    std::set<std::string_view> layered;
    for (size_t i = 0; i < file_.spec().layers.size(); ++i) {
      const LayerMap map = file_.layer(static_cast<int>(i));
      for (const Unit& unit : map.units) add_names(*unit.module, layered);
      for (const PlainSlot& plain : map.plains) add_names(*plain.module, layered);
    }
    for (const auto& [name, tensor] : file_.checkpoint().tensors()) {
      if (layered.contains(name)) continue;
      if (tensor.entry->dtype == kFloat8 && name.ends_with(kWeight)) {
        const model::StoredModule module = file_.module_beside(tensor);
        add_names(module, layered);
        keep(module_of(name), module);
        continue;
      }
      put(copied(tensor));
      if (tensor.entry->shape.size() == 2 && name.ends_with(kWeight) &&
          &tensor != &file_.embedding())
        about_.plain.push_back(module_of(name));
    }
  }

  static void add_names(const model::StoredModule& module, std::set<std::string_view>& to) {
    for (const StoredTensor* tensor : module.tensors)
      if (tensor) to.insert(tensor->entry->name);
  }

  // Writes a weight of eight-bit floats as it is, where the layout has a place for it, and else
  // what a server computes with: its values in bfloat16.
  void keep(const std::string& name, const model::StoredModule& module) {
    const StoredTensor& weight = *module.of(model::Role::kWeight);
    if (settings_.layout->holds != Layout::kAll) {
      put(rewritten(weight, name + ".weight", weight.entry->shape,
                    read_rows(module, 0, module.shape.out)));
      about_.plain.push_back(name);
      ++report_.widened;
      return;
    }
    put(copied(weight));
    NewTensor scale = copied(*module.of(model::Role::kScale));
    scale.name = name + ".weight_scale";
    put(std::move(scale));
    about_.kept.push_back({name, module.format->values});
    ++report_.passed;
  }

  // The same for a weight of a layer, unless a factor was folded into it.
  bool kept(const std::string& name, const model::StoredModule& module, bool folded,
            const std::vector<float>& values) {
    if (!module.format->quantized()) return false;
    report_.widened += folded ? 1 : 0;
    if (folded) return false;
    keep(name, module);
    if (settings_.layout->holds == Layout::kAll) digests_[name] = digest_of(values);
    return true;
  }

  void layer(int index) {
    const LayerMap map = file_.layer(index);
    LayerValues values = read_layer(map);
    if (settings_.shift) add_shift_biases(map, values);
    if (!before_.empty()) LayerRunner(map, values, file_.spec(), ops_).run(before_);
    const LayerOutcome outcome =
        LayerJob(settings_, map, values, file_.spec(), ops_).run(calibration_);
    KvRange range;
    if (!calibration_.empty() || !after_.empty()) {
      LayerRunner runner(map, values, file_.spec(), ops_, rounded_inputs(settings_, map, outcome));
      const auto* heads = std::get_if<Gqa>(&file_.spec().layers[static_cast<size_t>(index)].mixer);
      const auto watch_kv = [&](Tensor keys, Tensor of_values) {
        KvRange::add(keys, heads->head_dim, range.keys);
        KvRange::add(of_values, heads->head_dim, range.values);
      };
      if (settings_.target->calibrated() || settings_.kv)
        runner.run(calibration_, {}, std::nullopt, watch_kv);
      if (!after_.empty()) runner.run(after_);
    }
    write_layer(map, values, outcome);
    if (settings_.layout->tables) note_scales(map, outcome);
    if (settings_.kv) write_kv_scales(map, range);
    count(map, outcome);
  }

  void write_layer(const LayerMap& map, const LayerValues& values, const LayerOutcome& outcome) {
    std::set<std::string_view> copied_names;
    for (size_t i = 0; i < map.units.size(); ++i) {
      const Unit& unit = map.units[i];
      if (outcome.rounded[i]) {
        for (NewTensor& tensor : settings_.layout->tensors(unit.name, *outcome.rounded[i]))
          put(std::move(tensor));
        digests_[settings_.layout->name_of(unit.name, file_.spec())] =
            digest_of(values.units[i].values);
        about_.modules.push_back({unit.name, outcome.rounded[i]->format});
      } else {
        write_plain_unit(map, i, values, outcome, copied_names);
      }
      if (unit.bias)
        put(rewritten(*unit.bias, unit.bias->entry->name, unit.bias->entry->shape,
                      values.biases[i]));
      else if (!values.biases[i].empty())
        put(rewritten(*unit.tensor, unit.name + ".bias", {unit.out}, values.biases[i]));
    }
    for (size_t i = 0; i < map.plains.size(); ++i) {
      const StoredTensor& tensor = *map.plains[i].tensor;
      if (kept(module_of(tensor.entry->name), *map.plains[i].module, outcome.folded.plains[i],
               values.plains[i]))
        continue;
      put(outcome.folded.plains[i]
              ? rewritten(tensor, tensor.entry->name, tensor.entry->shape, values.plains[i])
              : copied(tensor));
      if (map.plains[i].slot.kind != model::Slot::kLinear) continue;
      about_.plain.push_back(module_of(tensor.entry->name));
    }
  }

  // Experts of a stack are written apart, because others of the same stack may be rounded.
  void write_plain_unit(const LayerMap& map, size_t i, const LayerValues& values,
                        const LayerOutcome& outcome, std::set<std::string_view>& copied_names) {
    const Unit& unit = map.units[i];
    if (kept(unit.name, *unit.module, outcome.folded.units[i], values.units[i].values)) return;
    about_.plain.push_back(unit.name);
    if (unit.stacked || outcome.folded.units[i])
      put(rewritten(*unit.tensor, unit.name + ".weight", {unit.out, unit.in},
                    values.units[i].values));
    else if (copied_names.insert(unit.tensor->entry->name).second)
      put(copied(*unit.tensor));
  }

  // For the tables of a layout, which has all layers rounded.
  void note_scales(const LayerMap& map, const LayerOutcome& outcome) {
    for (size_t linear = 0; linear < map.linears.size(); ++linear)
      for (const size_t unit : units_of(map.linears[linear])) {
        ModuleScales& scales = about_.scales.emplace_back();
        scales.name = settings_.layout->name_of(map.units[unit].name, file_.spec());
        scales.largest_input = outcome.largest.at(linear);
        for (const Step& step : outcome.rounded[unit]->steps) scales.outputs.push_back(step.scale);
      }
  }

  void write_kv_scales(const LayerMap& map, const KvRange& range) {
    const std::string& name = map.units.at(map.linear("qkv")->pieces.at(0).unit).name;
    const std::string attention = name.substr(0, name.rfind('.'));
    if (!settings_.layout->tables) return write_kv_tensors(attention, range);
    const auto& heads = std::get<Gqa>(file_.spec().layers[static_cast<size_t>(map.layer)].mixer);
    about_.cache.push_back({.attention = settings_.layout->name_of(attention, file_.spec()),
                            .keys = range.keys,
                            .values = range.values,
                            .sharers = heads.heads / heads.kv_heads});
  }

  void write_kv_tensors(const std::string& attention, const KvRange& range) {
    const float bound = settings_.kv == DType::kI8 ? 127 : 448;
    const auto add = [&](std::string_view what, const std::vector<float>& heads) {
      const float largest = heads.empty() ? 0 : std::ranges::max(heads);
      const float scale = largest > 0 ? largest / bound : 1;
      put({.name = fmt::format("{}.{}", attention, what),
           .dtype = "F32",
           .shape = {1},
           .data = float_bytes({scale}, DType::kF32)});
    };
    add("k_scale", range.keys);
    add("v_scale", range.values);
  }

  void count(const LayerMap& map, const LayerOutcome& outcome) {
    for (size_t i = 0; i < map.units.size(); ++i) {
      const bool rounded = outcome.rounded[i].has_value();
      ++(rounded ? report_.units : report_.plain);
      report_.rounded_again += rounded && map.units[i].module->format->quantized();
    }
    report_.few_tokens += outcome.few_tokens;
    report_.unfactored += outcome.unfactored;
    report_.folds += outcome.folded.kept;
    report_.shifts += outcome.folded.shifts;
    report_.folds_tried += outcome.folded.tried;
    report_.error += outcome.error;
    report_.nearest += outcome.nearest;
    if (outcome.few_tokens > 0)
      spdlog::info(
          "layer {}: {} experts' weights saw fewer than {} tokens and are rounded to nearest",
          map.layer, outcome.few_tokens, settings_.min_tokens);
    if (outcome.unfactored > 0)
      spdlog::warn(
          "layer {}: {} weights are rounded to nearest, because the moments of their inputs "
          "cannot be factored",
          map.layer, outcome.unfactored);
  }

  Quality measure() {
    const ModelSpec& spec = file_.spec();
    std::vector<float> norm = read_floats(file_.norm());
    std::vector<float> table = read_floats(file_.head());
    Buffer owner;
    const Linear head =
        ops_.prepare({.weight = host_tensor(table.data(), DType::kF32, {spec.vocab, spec.hidden})},
                     {.dtype = DType::kF32}, &owner);
    table = {};
    const Norm last{host_tensor(norm.data(), DType::kF32, {spec.hidden}), spec.eps};
    const auto logits = [&](Matrix& residual, int64_t first, int64_t count) {
      Matrix x(count, spec.hidden), out(count, spec.vocab);
      ops_.add_norm(x.tensor(), residual.tensor().row_range(first, count), {}, last);
      ops_.linear(out.tensor(), x.tensor(), head);
      ops_.wait(ops_.mark());
      return out;
    };
    constexpr int64_t kRows = 64;
    QualityMeter meter;
    for (size_t s = 0; s < data_.heldout.size(); ++s) {
      const Sequence& sequence = data_.heldout[s];
      const auto end = static_cast<int64_t>(sequence.tokens.size()) - 1;
      for (auto first = static_cast<int64_t>(sequence.first) - 1; first < end; first += kRows) {
        const int64_t rows = std::min(kRows, end - first);
        const Matrix p = logits(before_[s], first, rows), q = logits(after_[s], first, rows);
        for (int64_t r = 0; r < rows; ++r)
          meter.add(p.row(r), q.row(r), spec.vocab,
                    sequence.tokens[static_cast<size_t>(first + r) + 1]);
      }
    }
    return meter.result();
  }

  // A folder with modules.json can be read only together with the file of its Pooling module.
  void copy_pooling() {
    const std::filesystem::path dir = file_.dir(), modules = dir / "modules.json";
    if (!std::filesystem::exists(modules)) return;
    model::SentenceModules found;
    const auto pooling =
        model::read_modules(read_json_file(modules.string()), modules.string(), found);
    if (pooling) writer_.copy_file(dir, std::filesystem::path(*pooling) / "config.json");
  }

  void write_config() {
    const std::filesystem::path from = std::filesystem::path(file_.dir()) / "config.json";
    std::ifstream in(from, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    auto parsed = parse_ordered_json(text, {.max_keys = 1u << 16});
    if (!parsed) fail_load("{}: {}", from.string(), parsed.error().what);
    const std::string head = "lm_head";  // there is one where it shares the embedding, too
    if (std::ranges::find(about_.plain, head) == about_.plain.end()) about_.plain.push_back(head);
    about_.format = settings_.format;
    about_.kv = settings_.kv;
    about_.damping = settings_.compensate ? settings_.gptq.damping : 0;
    about_.version = settings_.version;
    if (settings_.shift) note_shift_biases(file_.spec(), *parsed);
    (*parsed)["quantization_config"] = OrderedJson(settings_.layout->config(about_));
    writer_.write_text("config.json", parsed->dump(2) + "\n");
  }

  const ModelFile& file_;
  const Settings& settings_;
  const Data& data_;
  const Job& job_;
  Ops& ops_;
  FolderWriter writer_;
  Stream calibration_, before_, after_;
  std::map<std::string, uint64_t> digests_;
  QuantizedModel about_;
  Report report_;
};

void check_data(const ModelFile& file, const Settings& settings, const Data& data) {
  if (settings.target->calibrated() && data.calibration.empty())
    fail_load("--to {} needs calibration data", settings.target->name);
  if (settings.kv && data.calibration.empty()) fail_load("--kv-cache-dtype needs calibration data");
  for (const auto* sequences : {&data.calibration, &data.heldout})
    for (const Sequence& sequence : *sequences)
      for (const int32_t token : sequence.tokens)
        if (token < 0 || token >= file.spec().vocab)
          fail_load("token id {} lies outside the vocabulary [0, {})", token, file.spec().vocab);
}

}  // namespace

void check_model(const ModelFile& file, const Settings& settings) {
  if (settings.layout->check_model) settings.layout->check_model(file.spec());
  if (settings.shift) check_shift(file.spec());
  if (file.quantized() && bits(settings.format.dtype) >= 8)
    fail_load(
        "{}: its weights are 8-bit floats already, and --to {} would round them to 8 other bits: "
        "choose 4 bits (w4a16, gptq, awq or w4a8)",
        file.dir(), settings.target->name);
  int64_t rounded = 0;
  for (size_t i = 0; i < file.spec().layers.size(); ++i) {
    if (settings.kv && std::holds_alternative<Mla>(file.spec().layers[i].mixer))
      fail_load(
          "--kv-cache-dtype stores scales of keys and values, and latent attention has neither in "
          "its cache: leave it out");
    const LayerMap map = file.layer(static_cast<int>(i));
    check_layer(settings, map);
    for (const Unit& unit : map.units) rounded += settings.ignored(unit.name) ? 0 : 1;
  }
  if (rounded == 0) fail_load("--ignore leaves no layer to quantize");
}

void check_place(const std::filesystem::path& out) { const FolderWriter tried(out, 0); }

Report quantize_model(const ModelFile& file, const Settings& settings, const Data& data,
                      const Job& job, Ops& ops) {
  check_model(file, settings);
  check_data(file, settings, data);
  return Quantizer(file, settings, data, job, ops).run();
}

}  // namespace skiff::quantize
