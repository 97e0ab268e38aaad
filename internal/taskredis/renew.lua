-- Renews the leases of attempts, and their locks.
--
-- KEYS[1]  any key of the Redis; the others are those of the attempts
-- ARGV[1]  ttl of the locks, ms
-- ARGV[2]  how long the fencing tokens are remembered from now on, ms
-- ARGV[3] and those that follow: queue, id, name and lock of each attempt
--
-- Returns for each attempt 1 if it is its task's latest and holds its lock, else 0.
--
-- Guarantee: a lock or a lease that is not the attempt's, and a task that is no longer at work, stay as they
-- are. So a second call does what one does.

local ttl, fence_ttl = ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000) -- ms, rounded down as Redis does: a lease must not end after its lock

local function renew(queue, id, name, lock)
  local have = redis.call('HMGET', 'asynq:{' .. queue .. '}:t:' .. id, 'siding_attempt', 'state', 'siding_lock')
  if have[1] ~= name or have[2] ~= 'active' then return 0 end
  if lock == '' then lock = have[3] or '' end -- the attempt has asked for one, and does not know yet that it has it
  if lock ~= '' then
    local base = string.match(lock, '^{(.*)}:permit:%d+$') or lock
    local key, value = lock, redis.call('GET', lock)
    if value == 'siding-limited' then -- the lock has a rule since, and the attempt was given a permit
      for _, number in ipairs(redis.call('HKEYS', '{' .. base .. '}:permits')) do
        local permit = '{' .. base .. '}:permit:' .. number
        if redis.call('GET', permit) == name then key, value = permit, name end
      end
    end
    if value ~= name then return 0 end
    redis.call('PEXPIRE', key, ttl)
    redis.call('PEXPIRE', '{' .. base .. '}:fence', fence_ttl)
    if key ~= base then
      if redis.call('GET', base) ~= 'siding-limited' then return 0 end -- another program has taken it
      if redis.call('PTTL', base) < tonumber(ttl) then redis.call('PEXPIRE', base, ttl) end
      redis.call('PEXPIRE', '{' .. base .. '}:permits', 172800000) -- as no lease lasts
    end
  end
  redis.call('ZADD', 'asynq:{' .. queue .. '}:lease', string.format('%.3f', (now + (lock ~= '' and ttl or 30000)) / 1000), id)
  return 1
end

local kept = {}
for i = 3, #ARGV, 4 do
  local ok, result = pcall(renew, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  if not ok then
    local text = type(result) == 'table' and result.err or tostring(result)
    if not string.find(text, 'WRONGTYPE', 1, true) then return redis.error_reply(text) end
    result = 0
  end
  kept[#kept + 1] = result
end
return kept
