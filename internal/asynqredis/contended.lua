-- Lists locks that a queue's tasks wait for, and at which it is time to look.
--
-- KEYS[1]  siding:{queue}:contended   sorted set of locks by when they are looked at, us
-- KEYS[2]  asynq:{queue}:paused
-- ARGV[1]  how many are listed at most
-- ARGV[2]  '' for those whose time has come; or else all are listed, from this cursor of ZSCAN on
--
-- Returns {1 if the queue is paused, how many locks there are in all, the next cursor or '0',
-- {lock, when it was to be looked at, ...}}.
--
-- Guarantee: nothing is changed.

local paused, all = redis.call('EXISTS', KEYS[2]), redis.call('ZCARD', KEYS[1])
if ARGV[2] ~= '' then
  local page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[1])
  return {paused, all, page[1], page[2]}
end
local t = redis.call('TIME')
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', t[1] * 1000000 + t[2], 'WITHSCORES', 'LIMIT', 0, ARGV[1])
return {paused, all, '0', due}
