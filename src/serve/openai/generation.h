// serve/openai/generation.h -- a generation request of the OpenAI API under way: n choices for each
// prompt, streamed or in one reply.
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/http/api_error.h"
#include "serve/http/api_keys.h"
#include "serve/openai/other_form.h"
#include "serve/openai/shape.h"
#include "serve/service/protocol_context.h"

namespace skiff::openai {

// The log-probability of a reply; best_of compares the mean over its tokens.
struct Likelihood {
  double sum = 0;
  int tokens = 0;
  double mean() const { return tokens > 0 ? sum / tokens : 0; }
};

// The service's sink keeps it alive. Thread-safe.
class Generation : public service::OpenGeneration, public std::enable_shared_from_this<Generation> {
 public:
  Generation(service::ProtocolContext& context, const OpenAiShape& shape, OpenAiCall call,
             std::string id, std::shared_ptr<http::HttpReply> reply, service::Ticket ticket);

  void start(std::vector<service::Prepared> prompts);
  void tick() override;
  void cut_off(service::CutOff why) override;

 private:
  void take(size_t prompt, service::Reply reply);
  void stream(size_t prompt, service::Reply reply);
  void finish();
  void fail(const http::ApiError& error);
  void cancel();
  void start_all(std::vector<service::Prepared> prompts);
  void gather(size_t writer, service::Reply reply);
  void send_events(size_t writer, service::Reply reply);
  void open();
  bool write_event(const ChoiceEvent& event, const std::string& usage);
  void send_whole();
  std::string whole();
  std::vector<size_t> best_of_prompt(size_t prompt) const;
  service::Usage usage() const;

  const std::shared_ptr<service::ProtocolContext> context_;
  const OpenAiShape& shape_;
  const OpenAiCall call_;
  const std::string id_, model_;
  const int64_t created_;
  const int drawn_;         // sequences that are sampled for each prompt; n of them are returned
  const std::string head_;  // JSON of each event of a stream, up to its choices
  const std::shared_ptr<http::HttpReply> reply_;
  service::Ticket ticket_;
  std::vector<PromptInfo> prompts_;

  std::mutex mutex_;                                    // guards the rest
  std::vector<std::unique_ptr<ChoiceWriter>> writers_;  // drawn_ for each prompt
  std::vector<service::Reply> held_;     // for each writer: what waits until an event is full
  std::vector<Likelihood> likelihoods_;  // for each writer
  std::vector<service::Usage> usages_;
  std::vector<service::RequestId> requests_;
  size_t size_ = 0;  // approximate bytes of the whole reply
  size_t ended_ = 0;
  bool opened_ = false, done_ = false;
  std::chrono::steady_clock::time_point last_write_;
};

// Handles a request of either endpoint. `other`, unless null, answers what it claims.
void generate(service::ProtocolContext& context, const http::ApiKeys& keys, Endpoint endpoint,
              const OtherForm* other, const http::HttpRequest& request,
              std::shared_ptr<http::HttpReply> reply);

}  // namespace skiff::openai
