// serve/openai_generation.h -- one generation request of the OpenAI API under way: n choices of one
// or more prompts, streamed or gathered.
#pragma once
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/front.h"
#include "serve/openai_error.h"
#include "serve/openai_shape.h"

namespace skiff {

// Lives as long as the service may call back. Thread-safe.
class Generation : public Running, public std::enable_shared_from_this<Generation> {
 public:
  Generation(Front& front, const OpenAiShape& shape, OpenAiCall call, std::string id,
             std::shared_ptr<HttpReply> reply, std::shared_ptr<void> place);

  void start(std::vector<Prepared> prompts);
  void tick() override;
  void cut_off() override;

 private:
  void take(size_t prompt, Reply reply);
  void stream(size_t prompt, Reply reply);
  void finish();
  void fail(const ApiError& error);
  void cancel();
  void open();
  bool write_event(const Json& json);
  Json envelope(const char* object, Json choices) const;
  Usage usage() const;

  const std::shared_ptr<Front> front_;
  const OpenAiShape& shape_;
  const OpenAiCall call_;
  const std::string id_, model_;
  const int64_t created_;
  const std::shared_ptr<HttpReply> reply_;
  std::shared_ptr<void> place_;
  std::vector<PromptInfo> prompts_;

  std::mutex mutex_;  // guards the rest
  std::vector<std::unique_ptr<ChoiceWriter>> writers_;
  std::vector<Usage> usages_;
  std::vector<RequestId> requests_;
  size_t ended_ = 0;
  bool opened_ = false, done_ = false;
  std::chrono::steady_clock::time_point last_write_;
};

// The handler of both endpoints.
void generate(Front& front, Endpoint endpoint, HttpRequest request,
              std::shared_ptr<HttpReply> reply);

}  // namespace skiff
