#include "serve/openai/aside.h"

#include <atomic>
#include <exception>
#include <utility>

#include "base/log.h"

namespace skiff::openai {

void go_on_aside(const service::ProtocolContext& context,
                 const std::shared_ptr<http::HttpReply>& reply, std::function<void()> job) {
  if (!context.aside) return job();
  const auto left = std::make_shared<std::atomic<bool>>(false);
  reply->on_close([left] { *left = true; });
  context.aside([left, job = std::move(job)] {
    if (*left) return;
    try {
      job();
    } catch (const std::exception& e) {
      spdlog::error("a request handler threw: {}", escaped(e.what()));
    }
  });
}

}  // namespace skiff::openai
