#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "serve/queue/redis_link.h"
#include "serve/queue/redis_scripts.h"
#include "serve/queue/store.h"

namespace skiff::queue {
namespace {

// An inbox may be this many leases old before it is thrown away with its instance.
constexpr double kInboxLeases = 6;
// The most messages of one receive(). A message is a piece of an answer, perhaps of 1 MiB, and is
// in memory twice while it is read.
constexpr size_t kBatch = 64;

using Words = std::vector<std::string>;

std::string milliseconds(double seconds) {
  return fmt::format("{}", std::max<int64_t>(1, std::llround(seconds * 1000)));
}

class RedisStore : public Store {
 public:
  explicit RedisStore(const StoreConfig& config)
      : config_(config),
        prefix_(fmt::format("skiff:1:{}:{}:", config.topic, config.model)),
        shard_(fmt::format("{}", std::hash<std::string>()(config.instance) %
                                     static_cast<size_t>(config.load_shards))),
        common_{prefix_, config.instance, milliseconds(config.lease_seconds),
                milliseconds(config.request_seconds),
                milliseconds(config.lease_seconds * kInboxLeases)},
        commands_({config.host, config.port, config.db, config.password}),
        inbox_({config.host, config.port, config.db, config.password}) {}

  Status connect() override { return commands_.connect(); }
  Status put(const std::string& id, const std::string& request, int load) override;
  Result<std::optional<Taken>> take() override;
  Result<std::vector<bool>> send(std::span<const Outgoing> pieces) override;
  Result<std::vector<bool>> beat(int load, std::span<const Lease> held) override;
  Result<std::vector<Seen>> look(std::span<const std::string> ids) override;
  Result<int64_t> call_back(const Lease& lease) override;
  Status give_back(const Lease& lease) override;
  Status drop(std::span<const std::string> ids) override;
  Status leave() override;
  Result<std::vector<std::string>> receive() override;

 private:
  // Views of the arguments, which must outlive them.
  std::vector<std::string_view> command(const std::string& script, const Words& own) const;
  Result<RedisValue> run(const char* script, const Words& own);
  Status done(const char* script, const Words& own);

  const StoreConfig config_;
  const std::string prefix_, shard_;
  const Words common_;
  RedisLink commands_, inbox_;
  size_t takes_ = 0;  // so that take() begins with another shard each time
};

std::string whole(const char* script) { return std::string(scripts::kCommon) + script; }

Words number(const Lease& lease) { return {lease.id, fmt::format("{}", lease.number)}; }

std::vector<std::string_view> RedisStore::command(const std::string& script,
                                                  const Words& own) const {
  std::vector<std::string_view> words{"EVAL", script, "0"};
  words.insert(words.end(), common_.begin(), common_.end());
  words.insert(words.end(), own.begin(), own.end());
  return words;
}

Result<RedisValue> RedisStore::run(const char* script, const Words& own) {
  const std::string text = whole(script);
  return commands_.call(command(text, own));
}

Status RedisStore::done(const char* script, const Words& own) {
  auto value = run(script, own);
  if (!value) return value.error();
  return ok();
}

Error odd_reply() { return {Code::kInternal, "Redis: a reply of a form that was not expected"}; }

// The flags that a script returned, one for each of `count`.
Result<std::vector<bool>> flags(Result<RedisValue> value, size_t count) {
  if (!value) return value.error();
  if (value->list.size() != count) return odd_reply();
  std::vector<bool> flags;
  for (const RedisValue& one : value->list) flags.push_back(one.number == 1);
  return flags;
}

Status RedisStore::put(const std::string& id, const std::string& request, int load) {
  return done(scripts::kPut, {id, request, shard_, fmt::format("{}", load)});
}

Result<std::optional<Taken>> RedisStore::take() {
  const size_t first = takes_++ % static_cast<size_t>(config_.load_shards);
  auto value =
      run(scripts::kTake, {fmt::format("{}", config_.min_load),
                           fmt::format("{}", config_.load_shards), fmt::format("{}", first)});
  if (!value) return value.error();
  if (value->nil) return std::optional<Taken>();
  if (value->list.size() != 3) return odd_reply();
  return std::optional<Taken>(Taken{.lease = {value->list[0].text, value->list[1].number},
                                    .request = std::move(value->list[2].text)});
}

Result<std::vector<bool>> RedisStore::send(std::span<const Outgoing> pieces) {
  Words own;
  for (const Outgoing& piece : pieces) {
    for (std::string& word : number(piece.lease)) own.push_back(std::move(word));
    own.emplace_back(piece.last ? "1" : "0");
    own.push_back(piece.piece);
  }
  return flags(run(scripts::kSend, own), pieces.size());
}

Result<std::vector<bool>> RedisStore::beat(int load, std::span<const Lease> held) {
  Words own{shard_, fmt::format("{}", load)};
  for (const Lease& lease : held)
    for (std::string& word : number(lease)) own.push_back(std::move(word));
  return flags(run(scripts::kBeat, own), held.size());
}

Result<std::vector<Seen>> RedisStore::look(std::span<const std::string> ids) {
  auto value = run(scripts::kLook, Words(ids.begin(), ids.end()));
  if (!value) return value.error();
  if (value->list.size() != 2 * ids.size()) return odd_reply();
  std::vector<Seen> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t standing = value->list[2 * i].number;
    if (standing < 0 || standing > 3) return odd_reply();
    seen.push_back({static_cast<Seen::Standing>(standing), value->list[2 * i + 1].number});
  }
  return seen;
}

Result<int64_t> RedisStore::call_back(const Lease& lease) {
  auto value = run(scripts::kCallBack, number(lease));
  if (!value) return value.error();
  return value->number;
}

Status RedisStore::give_back(const Lease& lease) { return done(scripts::kGiveBack, number(lease)); }

Status RedisStore::drop(std::span<const std::string> ids) {
  return done(scripts::kDrop, Words(ids.begin(), ids.end()));
}

Status RedisStore::leave() { return done(scripts::kLeave, {shard_}); }

Result<std::vector<std::string>> RedisStore::receive() {
  if (!inbox_.connected())
    if (Status good = inbox_.connect(); !good) return good.error();
  const std::string key = prefix_ + "inbox:" + config_.instance;
  const Words most{fmt::format("{}", kBatch)};
  const std::string script = whole(scripts::kEmpty);
  // While the first blocks, Redis does not look at the second.
  const std::vector<std::vector<std::string_view>> both{{"BLPOP", key, "1"}, command(script, most)};
  auto replies = inbox_.call_all(both);
  if (!replies) return replies.error();
  std::vector<std::string> messages;
  if (auto& first = replies->front(); first.list.size() == 2)
    messages.push_back(std::move(first.list[1].text));
  for (RedisValue& more : replies->back().list) messages.push_back(std::move(more.text));
  return messages;
}

}  // namespace

std::unique_ptr<Store> make_redis_store(const StoreConfig& config) {
  return std::make_unique<RedisStore>(config);
}

}  // namespace skiff::queue
