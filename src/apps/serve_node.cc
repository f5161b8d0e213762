#include "apps/serve_node.h"

#include <unistd.h>

#include <utility>

#include "apps/commands.h"
#include "apps/notify.h"
#include "apps/stall.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/fingerprint.h"
#include "engine/node_worker.h"
#include "engine/resolve.h"
#include "grammar/vocabulary.h"
#include "serve/service/constraint_compiler.h"

namespace skiff::apps {
namespace {

bool free_whitespace(const Args& args) {
  return !args.on("guided-decoding-disable-any-whitespace");
}

// Makes constraints as the service of node 0 does.
engine::NodeWorker::MakeConstraint constraint_maker(const Args& args,
                                                    const model::ModelConfig& model,
                                                    const text::Tokenizer& tokenizer) {
  if (model.pooling)
    return [](const std::string&) -> Result<std::shared_ptr<const TokenConstraint>> {
      return Error{Code::kInvalid, "a pooled model draws nothing"};
    };
  const auto compiler = std::make_shared<service::ConstraintCompiler>(
      grammar::Vocabulary::of(tokenizer, model.spec.vocab, eos_tokens(model, &tokenizer)),
      service::ConstraintCompiler::Options{.space = free_whitespace(args)});
  return [compiler](const std::string& source) -> Result<std::shared_ptr<const TokenConstraint>> {
    auto made = compiler->compile_source(source);
    if (!made) return made.error();
    return std::shared_ptr<const TokenConstraint>(std::move(*made));
  };
}

// Ends the process from whichever thread learns of it first.
[[noreturn]] void end_lost(const std::string& why) {
  spdlog::critical("this node cannot go on, ending with code {}: {}", kExitFailed, why);
  _exit(kExitFailed);
}

std::unique_ptr<engine::NodeWorker> started(const engine::EngineConfig& config,
                                            const engine::NodeWorker::MakeConstraint& constraints) {
  try {
    return engine::NodeWorker::start(config, constraints);
  } catch (const comm::GroupEnded& ended) {
    end_lost(ended.what());
  }
}

}  // namespace

peer::Facts drawing_facts(const Args& args, const text::Tokenizer& tokenizer) {
  std::string all;
  for (int token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string_view piece = tokenizer.piece(token);
    all += fmt::format("{} {} ", piece.size(), tokenizer.is_special(token) ? "special" : "text");
    all += piece;
  }
  all += tokenizer.eos();
  return {{"the digest of the tokenizer", engine::digest_of(all)},
          {"--guided-decoding-disable-any-whitespace", free_whitespace(args) ? "false" : "true"}};
}

int run_node(const Args& args, const std::string& folder, nodes::Settings settings,
             const text::Tokenizer& tokenizer) {
  engine::EngineConfig config = engine_config(args, folder);
  config.replicas = 1;
  config.nodes = std::move(settings);
  config.failed = end_lost;
  const int node = config.nodes.node;
  const auto constraints = constraint_maker(args, engine::read_model(config), tokenizer);
  const auto worker = started(config, constraints);
  spdlog::info("node {} computes; requests go to node 0 ({})", node, config.nodes.first.host);
  notify(notify_socket(), fmt::format("READY=1\nSTATUS=node {} computes", node));
  try {
    worker->run();
  } catch (const std::exception& failed) {
    end_lost(failed.what());
  }
  spdlog::info("stopped: node 0 has ended in good order");
  return 0;
}

}  // namespace skiff::apps
