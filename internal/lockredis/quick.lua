-- What most calls need: taking a lock that is free, and for which nobody waits, and releasing it. Where there is more to do,
-- these functions return nothing, and have done nothing: see acquire.lua and release.lua, whose guarantees are theirs, too.
-- They leave keys with braces to these, as those of permits.
--
-- Comes after beside.lua.

local call = redis.call
local fence -- of all locks that this script takes: the time in us

-- Takes a lock, and returns the fence.
local function take(lock, token, ttl, fence_ttl)
  local slot = slot_of(lock)
  if string.find(lock, '}', 1, true) or call('EXISTS', lock, slot .. 'queue', slot .. 'lines') > 0 then return end
  if not fence then
    local t = call('TIME')
    fence = string.format('%d', t[1] * 1000000 + t[2])
  end
  local before = redis.pcall('SET', slot .. 'fence', fence, 'PX', fence_ttl, 'GET')
  if before and before.err then return end
  if before and before >= fence then -- the clock was set back; as texts, for both have as many digits until the year 2286
    call('SET', slot .. 'fence', before, 'PX', fence_ttl)
    return
  end
  call('SET', lock, token, 'PX', ttl)
  return fence
end

-- Releases a lock, and returns 1.
local function drop(lock, token)
  local slot = slot_of(lock)
  if string.find(lock, '}', 1, true) or call('GET', lock) ~= token or call('EXISTS', slot .. 'queue', slot .. 'lines') > 0 then return end
  call('DEL', lock)
  return 1
end

return take, drop
