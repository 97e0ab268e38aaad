-- Starts attempts. This text comes before the scripts that start them.

-- Makes a task active whose id is in the active list already.
--   task, lease  keys of its queue
--   name         the attempt's
--   ends         when the lease ends, Unix seconds
--   came         how the task came to its lock, for a call that is made twice; nil if it has not waited
local function stamp(task, lease, id, name, ends, came)
  if came then
    redis.call('HSET', task, 'state', 'active', 'siding_attempt', name, 'siding_came', came)
  else
    redis.call('HSET', task, 'state', 'active', 'siding_attempt', name)
  end
  redis.call('HDEL', task, 'pending_since', 'siding_ticket', 'siding_lock', 'siding_woken')
  redis.call('ZADD', lease, ends, id)
end

-- Returns the name of a task as a holder. Returns nothing if the task is not encoded as expected,
-- or if the name would be longer than 200 bytes.
local function holder_of(msg, id, host)
  -- The first field of a task is its kind.
  local field, size = string.byte(msg, 1, 2)
  if field ~= 10 or size >= 128 then return end
  local kind = string.sub(msg, 3, 2 + size)
  if string.find(kind .. id, '%z') then return end -- where string.format would end a value
  local holder = string.format(HOLDER, kind, id, host)
  if #holder <= 200 then return holder end
end

