-- What the scripts that begin an attempt have in common; it is put in front of each of them.

-- Makes a task, whose id is in the active list already, active in all else.
--   task, lease  keys of its queue
--   name         the attempt's
--   ends         when the lease ends, Unix seconds
local function stamp(task, lease, id, name, ends)
  redis.call('HSET', task, 'state', 'active', 'siding_attempt', name)
  redis.call('HDEL', task, 'pending_since', 'siding_ticket', 'siding_lock', 'siding_called')
  redis.call('ZADD', lease, ends, id)
end

-- How a task is called while it holds a lock; nothing where it is not encoded as expected, or
-- the name would be longer than a lock keeps.
local function holder_of(msg, id, host)
  -- The first field of a task is its kind.
  local field, size = string.byte(msg, 1, 2)
  if field ~= 10 or size >= 128 then return end
  local holder = string.sub(msg, 3, 2 + size) .. ' ' .. id .. ' on ' .. host
  if #holder <= 200 then return holder end
end

