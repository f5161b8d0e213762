// serve/queue/redis_link.h -- one connection to a Redis server, through hiredis.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct redisContext;

namespace skiff::queue {

// A reply. An error of Redis is no reply but a failed call.
struct RedisValue {
  bool nil = false;
  int64_t number = 0;
  std::string text;
  std::vector<RedisValue> list;
};

struct RedisAddress {
  std::string host;
  int port = 6379, db = 0;
  std::string password;
};

// Not thread-safe. A call that failed has closed the connection.
class RedisLink {
 public:
  explicit RedisLink(RedisAddress address) : address_(std::move(address)) {}

  // Connects, proves the password and chooses the database. kInvalid if Redis refuses one of these,
  // kExhausted if it cannot be reached.
  Status connect();
  bool connected() const { return context_ != nullptr; }
  // Sends one command and waits for its reply for up to kPatience seconds.
  Result<RedisValue> call(std::span<const std::string_view> words);
  // Sends all commands at once.
  Result<std::vector<RedisValue>> call_all(std::span<const std::vector<std::string_view>> commands);

  static constexpr int kPatience = 3;  // seconds

 private:
  Status append(std::span<const std::string_view> words);
  Result<RedisValue> reply();
  Error failed();

  struct Closer {
    void operator()(redisContext* context) const;
  };
  const RedisAddress address_;
  std::unique_ptr<redisContext, Closer> context_;  // null: not connected
};

}  // namespace skiff::queue
