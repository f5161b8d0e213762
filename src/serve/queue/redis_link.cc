#include "serve/queue/redis_link.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <utility>

namespace skiff::queue {
namespace {

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

// Our scripts nest their replies no deeper, and hiredis itself reads no more than eight levels.
constexpr int kMaxDepth = 4;

// Returns false if the reply holds an error, which `why` then says, or is nested too deep.
bool convert(const redisReply& reply, int depth, RedisValue* value, std::string* why) {
  if (reply.type == REDIS_REPLY_ERROR) {
    why->assign(reply.str, reply.len);
    return false;
  }
  value->nil = reply.type == REDIS_REPLY_NIL;
  if (reply.type == REDIS_REPLY_INTEGER) value->number = reply.integer;
  if (reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS)
    value->text.assign(reply.str, reply.len);
  if (reply.type != REDIS_REPLY_ARRAY) return true;
  if (depth == kMaxDepth) {
    *why = "a reply is nested too deep";
    return false;
  }
  value->list.resize(reply.elements);
  for (size_t i = 0; i < reply.elements; ++i)
    if (!convert(*reply.element[i], depth + 1, &value->list[i], why)) return false;
  return true;
}

// States of a Redis server that pass.
bool passes(std::string_view why) {
  for (const std::string_view state :
       {"LOADING", "BUSY", "MASTERDOWN", "READONLY", "MISCONF", "OOM", "TRYAGAIN", "CLUSTERDOWN"})
    if (why.starts_with(state)) return true;
  return false;
}

}  // namespace

void RedisLink::Closer::operator()(redisContext* context) const { redisFree(context); }

Error RedisLink::failed() {
  const std::string why = context_ && context_->err ? context_->errstr : "no memory";
  context_.reset();
  return {Code::kExhausted,
          fmt::format("Redis at {} port {}: {}", address_.host, address_.port, why)};
}

Status RedisLink::connect() {
  const timeval patience{.tv_sec = kPatience, .tv_usec = 0};
  context_.reset(redisConnectWithTimeout(address_.host.c_str(), address_.port, patience));
  if (!context_ || context_->err || redisSetTimeout(context_.get(), patience) != REDIS_OK)
    return failed();
  redisEnableKeepAlive(context_.get());
  const std::string db = fmt::format("{}", address_.db);
  std::vector<std::vector<std::string_view>> commands;
  if (!address_.password.empty()) commands.push_back({"AUTH", address_.password});
  if (address_.db != 0) commands.push_back({"SELECT", db});
  commands.push_back({"PING"});
  for (const auto& command : commands)
    if (auto done = call(command); !done) return done.error();
  return ok();
}

Status RedisLink::append(std::span<const std::string_view> words) {
  std::vector<const char*> starts;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    starts.push_back(word.data());
    sizes.push_back(word.size());
  }
  if (redisAppendCommandArgv(context_.get(), static_cast<int>(words.size()), starts.data(),
                             sizes.data()) != REDIS_OK)
    return failed();
  return ok();
}

Result<RedisValue> RedisLink::reply() {
  void* raw = nullptr;
  if (redisGetReply(context_.get(), &raw) != REDIS_OK || raw == nullptr) return failed();
  const Reply reply(static_cast<redisReply*>(raw));
  RedisValue value;
  std::string why;
  if (convert(*reply, 0, &value, &why)) return value;
  context_.reset();
  return Error{passes(why) ? Code::kExhausted : Code::kInvalid,
               fmt::format("Redis at {} port {}: {}", address_.host, address_.port, why)};
}

Result<RedisValue> RedisLink::call(std::span<const std::string_view> words) {
  const std::vector<std::string_view> command(words.begin(), words.end());
  auto replies = call_all({&command, 1});
  if (!replies) return replies.error();
  return std::move(replies->front());
}

Result<std::vector<RedisValue>> RedisLink::call_all(
    std::span<const std::vector<std::string_view>> commands) {
  if (!context_)
    return Error{Code::kExhausted,
                 fmt::format("Redis at {} port {}: not connected", address_.host, address_.port)};
  for (const auto& command : commands)
    if (Status done = append(command); !done) return done.error();
  std::vector<RedisValue> replies;
  for (size_t i = 0; i < commands.size(); ++i) {
    auto value = reply();
    if (!value) return value.error();
    replies.push_back(std::move(*value));
  }
  return replies;
}

}  // namespace skiff::queue
