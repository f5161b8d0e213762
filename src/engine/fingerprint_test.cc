#include "engine/fingerprint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "engine/model_testing.h"
#include "engine/resolve.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"

namespace skiff::engine {
namespace {

namespace fs = std::filesystem;

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()) {
    const EngineConfig config{.model = folder_.path(), .version = "1.0"};
    resolved_ = resolve(config, model::read_model_config(config.model));
    write("a.safetensors", std::string(5000, 'x'));
  }
  void write(const std::string& name, const std::string& bytes) const {
    const fs::path path = fs::path(folder_.path()) / name;
    std::ofstream(path) << bytes;
    fs::last_write_time(path, kThen);
  }
  kv::BlockKey now() const { return fingerprint_of(resolved_, arithmetic_); }
  // Returns whether the fingerprint is different after `change`.
  bool tells(const std::function<void()>& change) {
    const kv::BlockKey before = now();
    change();
    return now() != before;
  }

  static constexpr fs::file_time_type kThen{std::chrono::hours(1000)};
  DummyFolder folder_;
  Resolved resolved_;
  Arithmetic arithmetic_{.backend = "cpu avx2", .build = "b"};
};

TEST_F(FingerprintTest, IsOfAllThatKeysAndValuesDependOn) {
  EXPECT_EQ(now(), now());
  EXPECT_TRUE(tells([&] { resolved_.cache.version.push_back('1'); }));
  EXPECT_TRUE(tells([&] { resolved_.cache.block_size = 32; }));
  EXPECT_TRUE(tells([&] { arithmetic_.backend.push_back('x'); }));
  EXPECT_TRUE(tells([&] { arithmetic_.build.push_back('c'); }));
  EXPECT_TRUE(tells([&] {
    resolved_.model.config_name.assign("other.json");
    write("other.json", "{}");
  }));
}

// A sum over experts is split among ranks in another way if they have them whole.
TEST_F(FingerprintTest, IsOfTheCutOfTheModel) {
  EXPECT_TRUE(tells([&] { resolved_.ranks = 2; }));
  EXPECT_TRUE(tells([&] { resolved_.whole_experts = true; }));
  const auto facts = [&] { return shared_facts(resolved_, arithmetic_, 16); };
  const peer::Facts before = facts();
  resolved_.whole_experts = false;
  EXPECT_NE(facts(), before);
}

// Where each rank has the drafter whole, its keys and values lie elsewhere in a block of the group,
// but in the form of one rank they are where they always are.
TEST_F(FingerprintTest, OtherInstancesMayCutTheDrafterOtherwise) {
  resolved_.ranks = 2;
  resolved_.speculation = draft::Settings{.method = "draft_model"};
  resolved_.drafter.emplace();
  resolved_.drafter->folder = folder_.path();
  resolved_.drafter->part.size = 2;
  const auto facts = [&] { return shared_facts(resolved_, arithmetic_, 16); };
  const peer::Facts cut = facts();
  const kv::BlockKey file = fingerprint_of(cut, resolved_);
  EXPECT_TRUE(tells([&] { resolved_.drafter->part.size = 1; }));
  EXPECT_EQ(facts(), cut);
  EXPECT_NE(fingerprint_of(facts(), resolved_), file);
}

TEST_F(FingerprintTest, IsOfTheDraftersFormat) {
  resolved_.speculation = draft::Settings{.method = "draft_model"};
  resolved_.drafter.emplace();
  resolved_.drafter->folder = folder_.path();
  const peer::Facts plain = shared_facts(resolved_, arithmetic_, 16);
  EXPECT_TRUE(tells([&] { resolved_.drafter->schemes = model::choose_schemes("wint8", "", {}); }));
  EXPECT_NE(shared_facts(resolved_, arithmetic_, 16), plain);
  EXPECT_TRUE(tells([&] { resolved_.drafter->schemes = model::choose_schemes("int4", "", {}); }));
}

TEST_F(FingerprintTest, IsOfThePrecision) {
  Precision& precision = resolved_.precision;
  EXPECT_TRUE(tells([&] { precision.act = DType::kBF16; }));
  EXPECT_TRUE(tells([&] { precision.kv.dtype = DType::kBF16; }));
  EXPECT_TRUE(tells([&] { precision.kv.group = 32; }));
  EXPECT_TRUE(tells([&] { precision.kv.zero = true; }));
  EXPECT_TRUE(tells([&] { precision.kv.fixed = true; }));
  EXPECT_TRUE(tells([&] { precision.weights.dtype = DType::kBF16; }));
  EXPECT_TRUE(tells([&] { precision.weights.block_out = 128; }));
  EXPECT_TRUE(tells([&] { precision.weights.block_in = 128; }));
  EXPECT_TRUE(tells([&] { precision.weights.scale = DType::kF32; }));
  EXPECT_TRUE(tells([&] { precision.weights.zero = DType::kU8; }));
  EXPECT_TRUE(tells([&] { precision.weights.input = InputFormat{}; }));
  EXPECT_TRUE(tells([&] { precision.weights.input->dtype = DType::kF8E4M3; }));
  const auto choose = [&](const char* name) {
    return tells([&] { resolved_.schemes = model::choose_schemes(name, "", {}); });
  };
  EXPECT_TRUE(choose("wint8"));
  EXPECT_TRUE(choose("int4"));
  EXPECT_FALSE(choose("int4"));
}

// Settings that do not affect the bits of keys and values do not change the fingerprint.
TEST_F(FingerprintTest, IsOfNothingElse) {
  EXPECT_FALSE(tells([&] { resolved_.limits.max_seqs += 1; }));
  EXPECT_FALSE(tells([&] { resolved_.cache.host_slots += 1; }));
  EXPECT_FALSE(tells([&] { resolved_.threads += 1; }));
}

TEST_F(FingerprintTest, IsOfTheWeightFiles) {
  const fs::path file = fs::path(folder_.path()) / "a.safetensors";
  EXPECT_TRUE(tells([&] { write("a.safetensors", std::string(5001, 'x')); })) << "size";
  EXPECT_TRUE(tells([&] { fs::last_write_time(file, kThen + std::chrono::seconds(1)); })) << "time";
  write("a.safetensors", std::string(5000, 'x'));
  EXPECT_TRUE(tells([&] { write("a.safetensors", std::string(5000, 'y')); })) << "contents";
  EXPECT_TRUE(tells([&] { fs::rename(file, fs::path(folder_.path()) / "b.safetensors"); }));
  EXPECT_TRUE(tells([&] { write("c.safetensors", "more"); })) << "another file";
  EXPECT_TRUE(tells([&] { resolved_.model.format = model::LoadFormat::kDummy; }));
  EXPECT_TRUE(tells([&] { resolved_.model.seed = 1; }));
}

TEST_F(FingerprintTest, BackendsNameTheirInstructionSet) {
  std::set<std::string> names = {make_reference_ops()->arithmetic()};
  const auto sets = cpu::available_isas();
  for (const cpu::Isa isa : sets)
    names.insert(make_cpu_ops(CpuOptions{.threads = 1, .isa = isa})->arithmetic());
  EXPECT_EQ(names.size(), sets.size() + 1);
  EXPECT_EQ(make_cpu_ops(1)->arithmetic(), make_cpu_ops(2)->arithmetic());
}

TEST_F(FingerprintTest, TheBuildsSourcesHaveADigest) {
  EXPECT_EQ(sources_digest().size(), 64u);
  EXPECT_EQ(sources_digest().find_first_not_of("0123456789abcdef"), std::string_view::npos);
}

}  // namespace
}  // namespace skiff::engine
