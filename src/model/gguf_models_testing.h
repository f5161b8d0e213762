// model/gguf_models_testing.h -- for tests: the same small random model as a folder of safetensors
// and as a GGUF file, in float32 or in Q8_0, which holds its values exactly.
//
// Elements are whole numbers of 64ths and blocks of Q8_0 have the scale 1/64, so weights are the
// same numbers in all forms. In float32 results are the same bits; with Q8_0 scales multiply the
// sums instead of the elements, which rounds in other places: sums have at most 64 terms, and a
// model of two layers some ten of them one behind the other.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/load_error.h"
#include "gguf/gguf_writer_testing.h"
#include "model/model_testing.h"
#include "model/single.h"
#include "ops/reference/reference_ops.h"

namespace skiff::testing {

// Every element is a whole number of 64ths.
struct WholeMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<int8_t> codes;

  std::vector<float> values() const {
    std::vector<float> out;
    out.reserve(codes.size());
    for (const int8_t code : codes) out.push_back(static_cast<float>(code) / 64);
    return out;
  }
  // Row i of the result is row from(i).
  WholeMatrix picked(int64_t count, const std::function<int64_t(int64_t)>& from) const {
    WholeMatrix out{.rows = count, .cols = cols, .codes = {}};
    for (int64_t r = 0; r < count; ++r)
      out.codes.insert(out.codes.end(), codes.begin() + from(r) * cols,
                       codes.begin() + (from(r) + 1) * cols);
    return out;
  }
  WholeMatrix transposed() const {
    WholeMatrix out{.rows = cols, .cols = rows, .codes = {}};
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r)
        out.codes.push_back(codes[static_cast<size_t>(r * cols + c)]);
    return out;
  }
  // Rows of q or k as llama.cpp wants Llama's: the halves of each head take turns.
  WholeMatrix paired(int64_t heads) const {
    const int64_t half = rows / heads / 2;
    return picked(rows, [&](int64_t r) {
      return r / (2 * half) * 2 * half + r % 2 * half + r % (2 * half) / 2;
    });
  }
  WholeMatrix& append(const WholeMatrix& more) {
    cols = more.cols;
    rows += more.rows;
    codes.insert(codes.end(), more.codes.begin(), more.codes.end());
    return *this;
  }
};

class TwoForms {
 public:
  WholeMatrix random(int64_t rows, int64_t cols) {
    WholeMatrix m{.rows = rows, .cols = cols, .codes = {}};
    std::normal_distribution<float> normal(0, 64 / std::sqrt(static_cast<float>(cols)));
    for (int64_t i = 0; i < rows * cols; ++i)
      m.codes.push_back(static_cast<int8_t>(std::clamp(normal(random_), -127.0f, 127.0f)));
    return m;
  }
  void torch(const std::string& name, const WholeMatrix& m) {
    torch_.push_back({name + ".weight", "F32", {m.rows, m.cols}, f32_bytes(m.values())});
  }
  // `experts` > 0: a stack of matrices.
  void gguf(const std::string& name, const WholeMatrix& m, int64_t experts = 0) {
    std::vector<int64_t> shape = {m.rows, m.cols};
    if (experts) shape = {experts, m.rows / experts, m.cols};
    plain_.push_back({name + ".weight", 0, shape, f32_bytes(m.values())});
    const bool whole = m.cols % 32 == 0;
    const bool router = name.ends_with("ffn_gate_inp");
    eight_.push_back(whole && !router ? GgufFileTensor{name + ".weight", 8, shape, q8_0(m)}
                                      : plain_.back());
  }
  void both(const std::string& torch_name, const std::string& gguf_name, int64_t rows,
            int64_t cols) {
    const WholeMatrix m = random(rows, cols);
    torch(torch_name, m);
    gguf(gguf_name, m);
  }
  // Names are whole.
  void vector(const std::string& torch_name, const std::string& gguf_name, int64_t size,
              float middle = 1) {
    const WholeMatrix m = random(1, size);
    std::vector<float> values = m.values();
    for (float& x : values) x = middle + x / 4;
    torch_.push_back({torch_name, "F32", {size}, f32_bytes(values)});
    plain_.push_back({gguf_name, 0, {size}, f32_bytes(values)});
    eight_.push_back(plain_.back());
  }
  const std::vector<FileTensor>& torch_tensors() const { return torch_; }
  std::vector<GgufFileTensor>& gguf_tensors(bool eight) { return eight ? eight_ : plain_; }

 private:
  static std::string q8_0(const WholeMatrix& m) {
    constexpr uint16_t k64th = 0x2400;  // a float16
    std::string data;
    for (size_t i = 0; i < m.codes.size(); i += 32) {
      data.append(reinterpret_cast<const char*>(&k64th), 2);
      data.append(reinterpret_cast<const char*>(&m.codes[i]), 32);
    }
    return data;
  }

  std::mt19937 random_{11};
  std::vector<FileTensor> torch_;
  std::vector<GgufFileTensor> plain_, eight_;
};

constexpr int kHidden = 32, kHeads = 4, kKvHeads = 2, kVocab = 40, kDense = 64, kWidth = 32;
constexpr int kExperts = 8, kLayers = 2;

inline std::vector<float> logits(const model::LoadedModel& model, Ops& ops) {
  comm::Mesh mesh = comm::make_solo_mesh();
  model::SingleSequence sequence(model, ops, mesh, DType::kF32, 8, 8);
  const Tensor out = sequence.forward(std::vector<int32_t>{1, 5, 39, 7, 7, 12});
  return {out.as<float>(), out.as<float>() + out.elements()};
}

// A model in both forms, whose parts tests may still change.
struct Both {
  std::string arch;  // config.json names it
  Json config, metadata;
  TwoForms weights;

  std::vector<float> of_torch() const {
    const TestModel folder(arch, config);
    folder.write("model.safetensors", safetensors_bytes(weights.torch_tensors()));
    return run(folder.dir());
  }
  std::vector<float> of_gguf(bool eight) {
    const TestModel folder(arch);
    folder.write("model.gguf", gguf_bytes(metadata, weights.gguf_tensors(eight)));
    return run(folder.dir() + "/model.gguf");
  }
  // The same in two files, of which the first has a third of the tensors.
  std::vector<float> of_parts() {
    const TestModel folder(arch);
    const std::vector<GgufFileTensor>& all = weights.gguf_tensors(true);
    const auto middle = all.begin() + std::ssize(all) / 3;
    Json first = metadata, second = {{"split.no", 1u}, {"split.count", 2u}};
    first.update({{"split.no", 0u}, {"split.count", 2u}, {"split.tensors.count", all.size()}});
    const std::string path = folder.dir() + "/model-00001-of-00002.gguf";
    folder.write("model-00001-of-00002.gguf", gguf_bytes(first, {all.begin(), middle}));
    folder.write("model-00002-of-00002.gguf", gguf_bytes(second, {middle, all.end()}));
    return run(path);
  }
  std::string refusal() {
    try {
      of_gguf(false);
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  static std::vector<float> run(const std::string& path) {
    const auto ops = make_reference_ops();
    return logits(model::load_model(path, model::read_model_config(path), {.progress = {}}, *ops),
                  *ops);
  }
  void expect_same() {
    const std::vector<float> want = of_torch(), met = of_gguf(false), eight = of_gguf(true);
    EXPECT_EQ(met, want);
    ASSERT_EQ(eight.size(), want.size());
    float size = 0;
    for (const float x : want) size = std::max(size, std::abs(x));
    EXPECT_GT(size, 0.5f);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(eight[i], want[i], size * 64 * 10 * 0x1p-24f) << i;
  }
};

inline std::string torch_layer(int i) { return fmt::format("model.layers.{}.", i); }
inline std::string gguf_layer(int i) { return fmt::format("blk.{}.", i); }

inline void add_outside(TwoForms& w) {
  w.both("model.embed_tokens", "token_embd", kVocab, kHidden);
  w.both("lm_head", "output", kVocab, kHidden);
  w.vector("model.norm.weight", "output_norm.weight", kHidden);
  for (int i = 0; i < kLayers; ++i) {
    w.vector(torch_layer(i) + "input_layernorm.weight", gguf_layer(i) + "attn_norm.weight",
             kHidden);
    w.vector(torch_layer(i) + "post_attention_layernorm.weight", gguf_layer(i) + "ffn_norm.weight",
             kHidden);
  }
}

// Attention whose q and k are permuted in GGUF.
inline void add_attention(TwoForms& w, int layer) {
  const int64_t dim = kHidden / kHeads;
  const std::string torch = torch_layer(layer) + "self_attn.", gguf = gguf_layer(layer);
  const WholeMatrix q = w.random(kHidden, kHidden), k = w.random(kKvHeads * dim, kHidden);
  w.torch(torch + "q_proj", q);
  w.gguf(gguf + "attn_q", q.paired(kHeads));
  w.torch(torch + "k_proj", k);
  w.gguf(gguf + "attn_k", k.paired(kKvHeads));
  w.both(torch + "v_proj", gguf + "attn_v", kKvHeads * dim, kHidden);
  w.both(torch + "o_proj", gguf + "attn_output", kHidden, kHidden);
}

inline void add_gated(TwoForms& w, const std::string& torch, const std::string& gguf,
                      const std::string& end, int64_t width) {
  w.both(torch + "gate_proj", gguf + "ffn_gate" + end, width, kHidden);
  w.both(torch + "up_proj", gguf + "ffn_up" + end, width, kHidden);
  w.both(torch + "down_proj", gguf + "ffn_down" + end, kHidden, width);
}

struct ExpertNames {
  const char *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
};

// Experts apart in torch, and stacked in GGUF or apart as older files have them.
inline void add_experts(TwoForms& w, const std::string& torch, const std::string& gguf, bool apart,
                        const ExpertNames& names = {}) {
  struct Part {
    const char *torch, *gguf;
    int64_t rows, cols;
  };
  for (const Part& part :
       {Part{names.gate, "ffn_gate", kWidth, kHidden}, Part{names.up, "ffn_up", kWidth, kHidden},
        Part{names.down, "ffn_down", kHidden, kWidth}}) {
    WholeMatrix all;
    for (int e = 0; e < kExperts; ++e) {
      const WholeMatrix one = w.random(part.rows, part.cols);
      w.torch(fmt::format("{}experts.{}.{}", torch, e, part.torch), one);
      if (apart) w.gguf(fmt::format("{}{}.{}", gguf, part.gguf, e), one);
      all.append(one);
    }
    if (!apart) w.gguf(fmt::format("{}{}_exps", gguf, part.gguf), all, kExperts);
  }
}

inline Json sizes() {
  return {{"hidden_size", kHidden},        {"intermediate_size", kDense},
          {"num_attention_heads", kHeads}, {"num_key_value_heads", kKvHeads},
          {"rms_norm_eps", 0.00048828125}, {"rope_theta", 10000.0}};
}

inline Json metadata_of(const std::string& arch, const Json& more) {
  Json keys = {{"block_count", 2u},
               {"embedding_length", 32u},
               {"feed_forward_length", 64u},
               {"context_length", 128u},
               {"attention.head_count", 4u},
               {"attention.head_count_kv", 2u},
               {"attention.layer_norm_rms_epsilon", 0.00048828125},
               {"rope.freq_base", 10000.0},
               {"expert_count", 8u},
               {"expert_used_count", 2u}};
  keys.update(more);
  Json metadata = {{"general.architecture", arch}};
  for (const auto& [key, value] : keys.items())
    if (!value.is_null()) metadata[fmt::format("{}.{}", arch, key)] = value;
  return metadata;
}

}  // namespace skiff::testing
