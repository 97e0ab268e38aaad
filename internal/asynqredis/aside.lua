-- What the scripts that put a task aside have in common; it is put in front of each of them.

-- Puts a task that is in no other set into the retry set.
--   task, retry   keys of its queue
--   msg           the encoded task, with the reason as its last error
--   at            when its timer fires, Unix seconds
--   ticket        its ticket in the line; '' when it stands in none
--   lock          the lock in whose line it stands; '' when it stands in none
local function aside(task, retry, id, msg, at, ticket, lock)
  redis.call('ZADD', retry, at, id)
  redis.call('HSET', task, 'msg', msg, 'state', 'retry', 'siding_ticket', ticket, 'siding_lock', lock)
end

-- Writes down that tasks of the queue wait for a lock, and that the sweeper is to look at it in
-- a second.
--   contended  the queue's sorted set of such locks, by when they are looked at, us
--   now        us
local function contend(contended, lock, now)
  redis.call('ZADD', contended, string.format('%.0f', now + 1000000), lock)
  redis.call('EXPIRE', contended, 10800) -- for a queue that no server has any more; tasks come by themselves before that
end

-- Has a task's uniqueness last for some ms more at least.
local function prolong(unique, id, ms)
  if redis.call('GET', unique) ~= id then return end
  local left = redis.call('PTTL', unique) -- negative when it has no end
  if left >= 0 and left < ms then redis.call('PEXPIRE', unique, ms) end
end

