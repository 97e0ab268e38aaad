-- Lists locks that a queue's tasks wait for, and whose scans are due.
--
-- KEYS[1]  siding:{queue}:contended   sorted set of locks by when they are scanned, us
-- KEYS[2]  asynq:{queue}:paused
-- ARGV[1]  how many to list at most
-- ARGV[2]  '' to list those whose time has come; or a cursor of ZSCAN, to list all from there on
--
-- Returns {1 if the queue is paused, how many locks there are in all, the next cursor or '0',
-- {lock, when its scan was due, ...}}.
--
-- Guarantee: the script changes nothing.

local paused, all = redis.call('EXISTS', KEYS[2]), redis.call('ZCARD', KEYS[1])
if ARGV[2] ~= '' then
  local page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[1])
  return {paused, all, page[1], page[2]}
end
local t = redis.call('TIME')
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', t[1] * 1000000 + t[2], 'WITHSCORES', 'LIMIT', 0, ARGV[1])
return {paused, all, '0', due}
