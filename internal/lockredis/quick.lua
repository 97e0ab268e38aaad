-- What most calls need: taking a lock that is free and for which nobody waits, or that is reserved for the caller; and releasing
-- it, to the goroutine that came first if no task waits. Where there is more to do, these functions return nothing, and have done
-- nothing: see acquire.lua, release.lua and queue.lua, whose guarantees are theirs, too. They leave keys with braces to these,
-- as those of permits.
--
-- Comes after beside.lua, and after cluster: whether there may be listeners that PUBLISH does not count.

local call, try = redis.call, redis.pcall
local clock -- the time in us, and the fence of all locks that this script takes

local function now()
  if not clock then
    local t = call('TIME')
    clock = string.format('%d', t[1] * 1000000 + t[2])
  end
  return clock
end

-- Takes a lock, and returns the fence.
local function quick_take(lock, token, ttl, fence_ttl, others)
  if string.find(lock, '}', 1, true) then return end
  local base = base_of(lock)
  if call('EXISTS', lock, base .. 'queue', base .. 'lines') > 0 then
    local value = try('GET', lock)
    local waiter = type(value) == 'string' and string.match(value, '^siding%-reserved:[^:]+:%d+:(.*)$')
    if not waiter or string.match(others, '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n(.*)$') ~= waiter then return end
  end
  local fence = now()
  local before = try('SET', base .. 'fence', fence, 'PX', fence_ttl, 'GET')
  if before and before.err then return end
  if before and before >= fence then -- the clock was set back; as texts, for both have as many digits until the year 2286
    call('SET', base .. 'fence', before, 'PX', fence_ttl)
    return
  end
  call('SET', lock, token, 'PX', ttl)
  return fence
end

-- Releases a lock, and returns 1.
local function quick_release(lock, token, handoff, fence_ttl, others)
  if string.find(lock, '}', 1, true) or call('GET', lock) ~= token then return end
  local base = base_of(lock)
  local wait_queue = base .. 'queue'
  if call('EXISTS', wait_queue, base .. 'lines') == 0 then
    call('DEL', lock)
    return 1
  end
  local waiter = call('EXISTS', base .. 'lines') == 0 and try('ZRANGE', wait_queue, 0, 0)[1]
  local channel = waiter and string.match(waiter, '^siding%-goroutine:[^:]*')
  local by, fence = string.match(others, '^([^\n]*)\n(%d+)$')
  if not channel or fence == '0' then return end
  local listeners = try('PUBLISH', channel, waiter)
  if type(listeners) ~= 'number' or listeners == 0 and not cluster then return end
  call('ZREM', wait_queue, waiter)
  call('SET', base .. 'released:' .. by, '1', 'PX', 10000)
  call('SET', lock, 'siding-reserved:' .. by .. ':' .. now() .. ':' .. waiter, 'PX', handoff)
  local before = try('SET', base .. 'fence', fence .. '*', 'PX', fence_ttl + handoff, 'GET')
  if before and before ~= fence then -- a late copy of the acquire was granted the lock once more; or it is of another type
    call('SET', base .. 'fence', (type(before) == 'string' and string.match(before, '^%d+') or fence) .. '*', 'PX', fence_ttl + handoff)
  end
  return 1
end

return quick_take, quick_release
