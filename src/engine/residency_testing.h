// engine/residency_testing.h -- for tests: an engine whose memory is given back and taken again,
// and folders with other weights.
#pragma once
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/llm.h"
#include "engine/residency.h"
#include "store/temp_dir_testing.h"
#include "weights/checkpoint.h"

namespace skiff::engine {

namespace fs = std::filesystem;

inline constexpr Parts kWeights{.weights = true}, kKv{.kv = true},
    kAll{.weights = true, .kv = true};

inline size_t resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* in = std::fopen("/proc/self/statm", "r");
  const int read = in ? std::fscanf(in, "%ld %ld", &pages, &resident) : 0;
  if (in) std::fclose(in);
  return read == 2 ? static_cast<size_t>(resident * sysconf(_SC_PAGESIZE)) : 0;
}

inline NewSequence prompt(SeqId id) {
  NewSequence sequence;
  sequence.id = id;
  for (int i = 0; i < 40; ++i) sequence.prompt.push_back((3 + 5 * i) % 90);
  sequence.stop.max_tokens = 16;
  sequence.params.temperature = 0;
  return sequence;
}

// Waits for the ends of sequences.
class Ends {
 public:
  Llm::Sink sink() {
    return [this](std::vector<Event> events) {
      const std::lock_guard lock(mutex_);
      for (Event& event : events) {
        Event& all = heard_[event.seq];
        all.tokens.insert(all.tokens.end(), event.tokens.begin(), event.tokens.end());
        all.cached += event.cached;
        all.finish = event.finish;
        all.why = event.why;
      }
      changed_.notify_all();
    };
  }
  Event wait(SeqId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return heard_[id].finish != Finish::kNone; });
    return heard_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<SeqId, Event> heard_;
};

// Starts an engine that has never had other weights than these, and asks it.
class FreshAnswer {
 public:
  FreshAnswer(EngineConfig config, const std::string& folder) {
    config.model = folder;
    llm_ = Llm::start(config, ends_.sink());
  }
  std::vector<Token> tokens(NewSequence sequence) {
    llm_->submit(std::move(sequence));
    return ends_.wait(1).tokens;
  }

 private:
  Ends ends_;
  std::unique_ptr<Llm> llm_;
};

// A copy of a small checkpoint, with room for other weights.
class ResidencyTest : public testing::Test {
 protected:
  ResidencyTest() {
    from_ = std::string(SKIFF_SOURCE_DIR) + "/tests/golden/qwen3";
    config_.model = from_;
    config_.threads = 1;
    config_.block_size = 8;
    config_.quiet = true;
    config_.num_blocks_override = 64;
  }
  void start() {
    llm_ = Llm::start(config_, ends_.sink());
    residency_.emplace(llm_->memories());
  }
  Residency& residency() { return *residency_; }

  // What the model says after prompt().
  Event answer() {
    llm_->submit(prompt(++last_));
    return ends_.wait(last_);
  }
  // What the whole server says after such a prompt.
  virtual Event answers() { return answer(); }
  void keep_a_file() {
    config_.storage_path = dir_.path() + "/cache";
    fs::create_directories(config_.storage_path);
    config_.storage_gb = 0.01;
    config_.swap_space_gb = 0.01;
  }
  // Puts other weights in place and the first ones back, awake and asleep. What is said is always
  // that of a server with these weights alone, and no block of others is found.
  void check_updates() {
    keep_a_file();
    const std::string other = negated("other");
    const auto theirs = FreshAnswer(config_without_file(), other).tokens(prompt(1));
    start();
    const Event mine = answers();
    ASSERT_NE(mine.tokens, theirs);
    for (const bool asleep : {false, true}) {
      if (asleep) {
        ASSERT_TRUE(residency().give_back(kAll));
      }
      const auto updated = residency().update({.folder = other, .version = "two"});
      ASSERT_TRUE(updated) << updated.error().what;
      EXPECT_EQ((*updated).version, "two");
      if (asleep) {
        EXPECT_EQ(residency().absent(), kKv);
        ASSERT_TRUE(residency().take_back(kKv));
      }
      expect(answers(), theirs);
      // A sleep keeps the version.
      ASSERT_TRUE(residency().give_back(kAll));
      ASSERT_TRUE(residency().take_back(kAll));
      EXPECT_EQ(answers().tokens, theirs);
      ASSERT_TRUE(residency().update({.folder = from_, .version = "one"}));
      expect(answers(), mine.tokens);
    }
    EXPECT_EQ(residency().state().updates, 4u);
    EXPECT_EQ(residency().state().version, "one");
  }
  static void expect(const Event& answer, const std::vector<Token>& tokens) {
    EXPECT_EQ(answer.tokens, tokens);
    EXPECT_EQ(answer.cached, 0) << "no block of other weights is found";
  }
  EngineConfig config_without_file() const {
    EngineConfig config = config_;
    config.storage_path.clear();
    config.storage_gb = config.swap_space_gb = 0;
    return config;
  }
  // A copy of `from_`.
  std::string copied(const std::string& name) {
    const std::string to = dir_.path() + "/" + name;
    fs::create_directories(to);
    fs::copy(from_, to, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    return to;
  }
  // Returns a copy of the model with other weights: the embeddings have the opposite sign.
  std::string negated(const std::string& name) {
    const std::string to = copied(name);
    negate(to, "model.embed_tokens.weight");
    return to;
  }
  static void negate(const std::string& folder, const std::string& tensor) {
    uint64_t begin = 0, end = 0, width = 0;
    {
      const Checkpoint old(folder);
      ASSERT_NE(old.find(tensor), nullptr) << tensor;
      const StoredTensor& stored = *old.find(tensor);
      uint64_t values = 1;
      for (const int64_t dim : stored.entry->shape) values *= static_cast<uint64_t>(dim);
      begin = stored.entry->begin, end = stored.entry->end, width = stored.bytes.size() / values;
    }
    std::fstream file(folder + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes(end - begin, '\0');
    file.seekg(static_cast<std::streamoff>(begin));
    file.read(bytes.data(), std::ssize(bytes));
    for (uint64_t at = width - 1; at < bytes.size(); at += width)
      bytes[at] = static_cast<char>(bytes[at] ^ 0x80);
    file.seekp(static_cast<std::streamoff>(begin));
    file.write(bytes.data(), std::ssize(bytes));
  }

  store::TempDir dir_;
  std::string from_;
  EngineConfig config_;
  Ends ends_;
  std::unique_ptr<Llm> llm_;
  std::optional<Residency> residency_;
  SeqId last_ = 0;
};

}  // namespace skiff::engine
