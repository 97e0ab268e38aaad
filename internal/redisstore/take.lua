-- Takes a lock that is free. This text is put into the scripts that name the file.

local function digits(n) return string.format('%.0f', n) end

-- Since when, for whom and by which nonce value reserves the lock; nothing when it does not.
local function reserved(value)
  local nonce, since, waiter = string.match(value or '', '^siding%-reserved:([^:]+):(%d+):(.*)$')
  return tonumber(since), waiter, nonce
end

-- Makes the next fence of a lock. The fence is the time in us, of 16 digits until the year 2286.
local function fenced(grant, retention)
  local now = redis.call('TIME')
  local fence = now[1] .. string.format('%06d', now[2])
  local before = redis.call('SET', grant, fence, 'PX', retention, 'GET')
  -- Digits of one length compare as their numbers do.
  if before and not (#before == 16 and before < fence) then
    local last = tonumber(string.match(before, '^%d+') or '0')
    if last >= tonumber(fence) then
      fence = digits(last + 1)
      redis.call('SET', grant, fence, 'PX', retention)
    end
  end
  return fence
end

-- Takes the lock for the token if it is free and nobody is queued, or if it is reserved
-- for the waiter. Returns the fence, the time since the reservation in us, and the nonce of the
-- reservation; or nothing and what the lock holds. The time is '-1', and the nonce '', if the lock
-- was not reserved.
local function take(lock, grant, queue, paused, token, ttl, retention, waiter)
  if waiter == '' or redis.call('EXISTS', queue, paused) == 0 then
    if redis.call('SET', lock, token, 'NX', 'PX', ttl) then return fenced(grant, retention), '-1', '' end
  end
  local value = redis.call('GET', lock)
  local since, whose, nonce = reserved(value)
  if not since or waiter == '' or whose ~= waiter then return nil, value end
  redis.call('SET', lock, token, 'PX', ttl)
  redis.call('ZREM', queue, waiter)
  local fence = fenced(grant, retention)
  return fence, digits(math.max(0, tonumber(fence) - since)), nonce
end

