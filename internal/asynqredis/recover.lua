-- Requeues an orphan: active -> tail of pending.
-- notify.lua and encoded.lua come before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:active
-- KEYS[3]  asynq:{queue}:lease
-- KEYS[4]  asynq:{queue}:pending
-- KEYS[5]  siding:{queue}:notify
-- ARGV[1]  task id
-- ARGV[2]  the attempt's name
-- ARGV[3]  nobody renews a lease that ends within so many seconds
-- ARGV[4]  what the task's last error says of the crash
-- ARGV[5]  how many crashes the task has with this one
--
-- Returns 1 when it was requeued, else 0.
--
-- Guarantees: only the crash is counted. A task stays where it is if its lease has been renewed
-- since, if a later attempt has started, or if the task is over. The same call made twice moves it
-- once.

local task, now = redis.call('HMGET', KEYS[1], 'siding_attempt', 'state', 'msg'), redis.call('TIME')
if task[1] ~= ARGV[2] or task[2] ~= 'active' then return 0 end
local ends = redis.call('ZSCORE', KEYS[3], ARGV[1])
if ends and tonumber(ends) > now[1] + ARGV[3] then return 0 end
if redis.call('LREM', KEYS[2], 0, ARGV[1]) == 0 then return 0 end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('LPUSH', KEYS[4], ARGV[1])
local found = parts(task[3] or '')
if found then redis.call('HSET', KEYS[1], 'msg', with_reason(found, ARGV[4])) end
redis.call('HSET', KEYS[1], 'state', 'pending', 'pending_since', string.format('%s%06d000', now[1], now[2]), 'siding_crashes', ARGV[5])
notify(KEYS[5], 1)
return 1
