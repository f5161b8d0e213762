#include "text/chat/builtin_templates.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "text/chat/chat_template.h"

namespace skiff::text {
namespace {

namespace fs = std::filesystem;

// Makes a model folder of the given name inside a temporary folder.
class ModelFolder {
 public:
  ModelFolder(const std::string& name, const std::string& config) {
    char root[] = "/tmp/skiff_builtin_XXXXXX";
    root_ = mkdtemp(root);
    path_ = root_ / name;
    fs::create_directory(path_);
    write("config.json", config);
  }
  ~ModelFolder() { fs::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path root_, path_;
};

constexpr const char* kLlama2 = R"({"model_type": "llama", "vocab_size": 32000})";
constexpr const char* kBaichuan2 = R"({"model_type": "baichuan", "vocab_size": 125696})";
constexpr const char* kBaichuan1 = R"({"model_type": "baichuan", "vocab_size": 64000})";
constexpr const char* kGlm = R"({"model_type": "chatglm", "padded_vocab_size": 65024})";
constexpr const char* kGlm4 = R"({"model_type": "chatglm", "padded_vocab_size": 151552})";

constexpr const char* kOne = R"([{"role": "user", "content": "Hi"}])";
constexpr const char* kMany = R"([{"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"}])";

std::string rendered(const ModelFolder& model, const char* messages, bool prompt = true) {
  const auto made = load_chat_template(model.path().string());
  if (!made) return "ERROR " + made.error().what;
  Conversation c;
  c.messages = OrderedJson::parse(messages);
  c.add_generation_prompt = prompt;
  const auto text = (*made)->render(c);
  return text ? *text : "ERROR " + text.error().what;
}

std::string family(const std::string& name, const std::string& config,
                   const std::string& tokenizer = "{}", const std::string& generation = "{}") {
  const ModelFolder model(name, config);
  model.write("tokenizer_config.json", tokenizer);
  model.write("generation_config.json", generation);
  const auto made = load_chat_template(model.path().string());
  return made ? std::string((*made)->builtin_family()) : "none";
}

TEST(BuiltinTemplates, Llama2) {
  const ModelFolder model("Llama-2-7b-chat-hf", kLlama2);
  model.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  EXPECT_EQ(rendered(model, kOne), "<s>[INST] Hi [/INST]");
  EXPECT_EQ(rendered(model, kMany),
            "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s>"
            "<s>[INST] Bye [/INST]");
  EXPECT_NE(rendered(model, R"([{"role": "assistant", "content": "x"}])").find("alternate"),
            std::string::npos);
}

TEST(BuiltinTemplates, Baichuan) {
  const ModelFolder two("Baichuan2-7B-Chat", kBaichuan2);
  EXPECT_EQ(rendered(two, kOne), "<reserved_106>Hi<reserved_107>");
  EXPECT_EQ(rendered(two, kMany),
            "Be brief.<reserved_106>Hi<reserved_107>Hello.<reserved_106>Bye<reserved_107>");
  EXPECT_EQ(rendered(two, kOne, false), "<reserved_106>Hi");
  const ModelFolder one("Baichuan-13B-Chat", kBaichuan1);
  one.write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(rendered(one, kOne), "<reserved_102>Hi<reserved_103>");
  EXPECT_EQ(rendered(one, kMany),
            "Be brief.<reserved_102>Hi<reserved_103>Hello.</s><reserved_102>Bye<reserved_103>");
}

TEST(BuiltinTemplates, ChatGlm) {
  const ModelFolder two("chatglm2-6b", kGlm);
  EXPECT_EQ(rendered(two, kOne), "[Round 1]\n\n问：Hi\n\n答：");
  EXPECT_EQ(rendered(two, kMany),
            "Be brief.\n\n[Round 1]\n\n问：Hi\n\n答：Hello.\n\n[Round 2]\n\n问：Bye\n\n答：");
  const ModelFolder three("chatglm3-6b", kGlm);
  EXPECT_EQ(rendered(three, kOne), "<|user|>\n Hi<|assistant|>");
  EXPECT_EQ(rendered(three, kMany),
            "<|system|>\n Be brief.<|user|>\n Hi<|assistant|>\n Hello.<|user|>\n Bye<|assistant|>");
  const ModelFolder four("glm-4-9b-chat", kGlm4);
  EXPECT_EQ(rendered(four, kMany),
            "<|system|>\nBe brief.<|user|>\nHi<|assistant|>\nHello.<|user|>\nBye<|assistant|>");
}

TEST(BuiltinTemplates, OnlyForModelsThatChat) {
  EXPECT_EQ(family("Llama-2-7b-hf", kLlama2), "none");
  EXPECT_EQ(family("my-chat", R"({"model_type": "llama", "vocab_size": 128256})"), "none");
  EXPECT_EQ(family("x", R"({"model_type": "llama", "vocab_size": 32000,
                            "_name_or_path": "meta-llama/Llama-2-7b-Chat-hf"})"),
            "Llama 2 chat");
  EXPECT_EQ(family("Baichuan2-7B-Base", kBaichuan2), "none");
  EXPECT_EQ(family("weights", kBaichuan2), "none");
  EXPECT_EQ(family("weights", kBaichuan2, "{}", R"({"user_token_id": 195})"), "Baichuan2 chat");
  EXPECT_EQ(family("weights", kGlm), "none");
  EXPECT_EQ(family("weights", kGlm, R"({"name_or_path": "THUDM/chatglm3-6b"})"), "ChatGLM3");
  EXPECT_EQ(
      family("weights", kGlm, R"({"added_tokens_decoder": {"64795": {"content": "<|user|>"}}})"),
      "ChatGLM3");
  EXPECT_EQ(family("chatglm3-6b-base", kGlm), "none");
  EXPECT_EQ(family("glm-4-9b", kGlm4), "none");
  EXPECT_EQ(family("qwen-chat", R"({"model_type": "qwen2", "vocab_size": 32000})"), "none");
  EXPECT_EQ(family("chat", "not JSON"), "none");
  EXPECT_EQ(family("Llama-2-7b-chat", kLlama2, R"({"chat_template": "own"})"), "");
}

}  // namespace
}  // namespace skiff::text
