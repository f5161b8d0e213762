// capi/loaded.h -- a model that is loaded and runs: engine, service, and what admits requests.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "apps/args.h"
#include "serve/service/engine_service.h"
#include "serve/service/protocol_context.h"

namespace skiff::capi {

struct LoadHooks {
  // Gets the part of the weights that is read; throws LoadError to end the loading.
  std::function<void(double part)> progress;
  // Called on the engine's thread, with the reason, when it cannot go on. Must not return.
  std::function<void(const std::string& why)> failed;
};

// All methods of `service` and `protocol` are safe from any thread. Its destructor ends all
// threads.
class Loaded {
 public:
  // Loads the model. Throws UsageError or LoadError.
  Loaded(const apps::Args& args, LoadHooks hooks);
  ~Loaded() { stop(); }

  service::Service& service() { return *service_; }
  service::ProtocolContext& protocol() { return *protocol_; }
  const engine::Llm& llm() const { return *llm_; }
  const std::shared_ptr<const text::Tokenizer>& tokenizer() const { return tokenizer_; }
  const std::vector<Token>& eos() const { return eos_; }
  bool has_chat() const { return has_chat_; }

  // Refuses what comes, cancels what runs, ends the service's thread and the engine's. Idempotent.
  void stop();
  // The same, but for the engine, whose thread will never end.
  void abandon();

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<Token> eos_;
  bool has_chat_ = false;
  std::unique_ptr<engine::Llm> llm_;
  std::unique_ptr<service::LlmPort> port_;
  std::unique_ptr<service::EngineService> service_;
  std::shared_ptr<service::ProtocolContext> protocol_;
};

// What skiff_info() answers.
std::string info_json(Loaded& loaded);

}  // namespace skiff::capi
