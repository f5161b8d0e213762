// serve/openai/aside.h -- goes on with a request where no small request waits for it.
#pragma once
#include <functional>
#include <memory>

#include "serve/http/server.h"
#include "serve/service/protocol_context.h"

namespace skiff::openai {

// Runs `job`, the rest of a handler's work: on the server's threads for what takes as long as its
// client decides, or here where the server has none. It is dropped if the client leaves before its
// turn. Where it throws, the end of its last reference to `reply` answers 500.
void go_on_aside(const service::ProtocolContext& context,
                 const std::shared_ptr<http::HttpReply>& reply, std::function<void()> job);

}  // namespace skiff::openai
