-- Parks tasks. This text comes before the scripts that park one.

-- Adds a task that is in no other set to the retry set.
--   task, retry   keys of its queue
--   msg           the encoded task, with the reason as its last error
--   at            its fallback time, Unix seconds
--   ticket        its ticket in the wait queue; '' when it is in none
--   lock          the lock in whose wait queue it is; '' when it is in none
local function to_retry(task, retry, id, msg, at, ticket, lock)
  redis.call('ZADD', retry, at, id)
  redis.call('HSET', task, 'msg', msg, 'state', 'retry', 'siding_ticket', ticket, 'siding_lock', lock)
end

-- Records that tasks of the queue wait for a lock, and that the sweeper scans the lock in a
-- second.
--   contended  the queue's sorted set of such locks, by when they are scanned, us
--   now        us
local function contend(contended, lock, now)
  redis.call('ZADD', contended, string.format('%.0f', now + 1000000), lock)
  redis.call('EXPIRE', contended, 10800) -- for a queue that no server has any more; tasks come by themselves before that
end

-- Keeps a task unique for so many ms more at least.
local function prolong(unique, id, ms)
  if redis.call('GET', unique) ~= id then return end
  local left = redis.call('PTTL', unique) -- negative when it has no end
  if left >= 0 and left < ms then redis.call('PEXPIRE', unique, ms) end
end

