// serve/queue/redis_scripts.h -- what a RedisStore does, as scripts: Redis runs each of them whole,
// with nothing in between.
//
// The keys, all behind one prefix (ARGV[1]):
//   request:ID    hash: bytes; origin, the instance where it came in; lease, the number of its last
//                 lease; while somebody computes it holder and until (ms of Redis's clock)
//   waits:NAME    list of ids: the requests of one instance that wait, oldest first
//   load:SHARD    sorted set: unfinished requests of each instance
//   alive:NAME    there while the instance gives signs of life
//   inbox:NAME    list of messages (messages.h)
//   idle          set of instances that found nothing to take
//
// ARGV[2] is the name of the calling instance; ARGV[3], ARGV[4] and ARGV[5] are the times of a
// lease, of a request without a sign of life, and of an inbox that nobody reads, in ms. What
// follows is each script's own.
#pragma once

namespace skiff::queue::scripts {

// Stands before each of the others.
inline constexpr char kCommon[] = R"lua(
local p, me, lease_ms, keep_ms, inbox_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local function request(id) return p .. 'request:' .. id end
local function waits(name) return p .. 'waits:' .. name end
local function alive(name) return redis.call('EXISTS', p .. 'alive:' .. name) == 1 end
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function tell(name, message)
  redis.call('RPUSH', p .. 'inbox:' .. name, message)
  redis.call('PEXPIRE', p .. 'inbox:' .. name, inbox_ms)
end
local function note(kind, name, number, id) tell(name, kind .. number .. ' ' .. id) end
local function ring()
  for _ = 1, 4 do
    local idle = redis.call('SPOP', p .. 'idle')
    if not idle then return end
    if alive(idle) then tell(idle, 'R') end
  end
end
local function end_lease(id)
  redis.call('HDEL', request(id), 'holder', 'until')
  return redis.call('HINCRBY', request(id), 'lease', 1)
end
local function renew(id)
  redis.call('HSET', request(id), 'until', now() + lease_ms)
  redis.call('PEXPIRE', request(id), keep_ms)
end
)lua";

// id, bytes, shard, load
inline constexpr char kPut[] = R"lua(
local id = ARGV[6]
if redis.call('EXISTS', request(id)) == 1 then return 0 end
redis.call('HSET', request(id), 'bytes', ARGV[7], 'origin', me, 'lease', 0)
redis.call('PEXPIRE', request(id), keep_ms)
redis.call('RPUSH', waits(me), id)
redis.call('PEXPIRE', waits(me), keep_ms)
redis.call('ZADD', p .. 'load:' .. ARGV[8], ARGV[9], me)
ring()
return 1
)lua";

// least load, number of shards, shard to begin with. Returns id, number, bytes; or nothing.
inline constexpr char kTake[] = R"lua(
local function take(origin)
  local id = redis.call('LPOP', waits(origin))
  while id do
    local bytes = redis.call('HGET', request(id), 'bytes')
    if bytes and origin == me then
      redis.call('DEL', request(id))
      return {id, 0, ''}
    end
    if bytes then
      local number = redis.call('HINCRBY', request(id), 'lease', 1)
      redis.call('HSET', request(id), 'holder', me)
      renew(id)
      note('T', origin, number, id)
      return {id, number, bytes}
    end
    id = redis.call('LPOP', waits(origin))
  end
end
local function bury(shard, name)
  for _, id in ipairs(redis.call('LRANGE', waits(name), 0, -1)) do redis.call('DEL', request(id)) end
  redis.call('DEL', waits(name))
  redis.call('ZREM', shard, name)
end
local taken = take(me)
if taken then return taken end
local shards = tonumber(ARGV[7])
for i = 0, shards - 1 do
  local shard = p .. 'load:' .. ((ARGV[8] + i) % shards)
  for _, name in ipairs(redis.call('ZREVRANGEBYSCORE', shard, '+inf', ARGV[6])) do
    if not alive(name) then
      bury(shard, name)
    elseif name ~= me then
      taken = take(name)
      if taken then return taken end
    end
  end
end
redis.call('SADD', p .. 'idle', me)
redis.call('PEXPIRE', p .. 'idle', inbox_ms)
return false
)lua";

// id, number, 1 if it is the last, piece; any number of such four. Returns 1 or 0 for each.
inline constexpr char kSend[] = R"lua(
local sent = {}
for i = 6, #ARGV, 4 do
  local id = ARGV[i]
  local known = redis.call('HMGET', request(id), 'lease', 'origin', 'holder')
  local ours = known[1] == ARGV[i + 1] and known[3] == me and alive(known[2])
  if ours then
    tell(known[2], ARGV[i + 3])
    if ARGV[i + 2] == '1' then redis.call('DEL', request(id)) else renew(id) end
  end
  sent[#sent + 1] = ours and 1 or 0
end
return sent
)lua";

// shard, load; then id, number of each lease. Returns 1 or 0 for each.
inline constexpr char kBeat[] = R"lua(
redis.call('SET', p .. 'alive:' .. me, '1', 'PX', lease_ms)
redis.call('ZADD', p .. 'load:' .. ARGV[6], ARGV[7], me)
local held = {}
for i = 8, #ARGV, 2 do
  local id = ARGV[i]
  local known = redis.call('HMGET', request(id), 'lease', 'origin', 'holder')
  local ours = known[1] == ARGV[i + 1] and known[3] == me
  if ours and not alive(known[2]) then
    redis.call('DEL', request(id))
    ours = false
  end
  if ours then renew(id) end
  held[#held + 1] = ours and 1 or 0
end
return held
)lua";

// ids. Returns for each of them its standing (store.h) and the number of its last lease.
inline constexpr char kLook[] = R"lua(
local seen = {}
local time = now()
for i = 6, #ARGV do
  local known = redis.call('HMGET', request(ARGV[i]), 'lease', 'until')
  local standing = 0
  if known[1] then standing = 1 end
  if known[1] and known[2] then standing = tonumber(known[2]) < time and 3 or 2 end
  if standing > 0 then redis.call('PEXPIRE', request(ARGV[i]), keep_ms) end
  seen[#seen + 1] = standing
  seen[#seen + 1] = tonumber(known[1] or '0')
end
redis.call('PEXPIRE', waits(me), keep_ms)
return seen
)lua";

// id, number. Returns the number of the next lease, or 0.
inline constexpr char kCallBack[] = R"lua(
local id = ARGV[6]
local known = redis.call('HMGET', request(id), 'lease', 'holder', 'until')
if known[1] ~= ARGV[7] or not known[2] or tonumber(known[3]) >= now() then return 0 end
local number = end_lease(id)
note('S', known[2], known[1], id)
redis.call('LPUSH', waits(me), id)
redis.call('PEXPIRE', waits(me), keep_ms)
ring()
return number
)lua";

// id, number
inline constexpr char kGiveBack[] = R"lua(
local id = ARGV[6]
local known = redis.call('HMGET', request(id), 'lease', 'holder', 'origin')
if known[1] ~= ARGV[7] or known[2] ~= me then return 0 end
note('B', known[3], end_lease(id), id)
redis.call('LPUSH', waits(known[3]), id)
redis.call('PEXPIRE', waits(known[3]), keep_ms)
ring()
return 1
)lua";

// ids
inline constexpr char kDrop[] = R"lua(
for i = 6, #ARGV do
  local id = ARGV[i]
  local known = redis.call('HMGET', request(id), 'lease', 'holder')
  redis.call('DEL', request(id))
  redis.call('LREM', waits(me), 0, id)
  if known[2] then note('S', known[2], known[1], id) end
end
return 1
)lua";

// shard
inline constexpr char kLeave[] = R"lua(
redis.call('DEL', p .. 'alive:' .. me, p .. 'inbox:' .. me, waits(me))
redis.call('ZREM', p .. 'load:' .. ARGV[6], me)
redis.call('SREM', p .. 'idle', me)
return 1
)lua";

// most messages. Returns those in the inbox, oldest first.
inline constexpr char kEmpty[] = R"lua(
local inbox = p .. 'inbox:' .. me
local messages = redis.call('LRANGE', inbox, 0, ARGV[6] - 1)
redis.call('LTRIM', inbox, ARGV[6], -1)
return messages
)lua";

}  // namespace skiff::queue::scripts
