-- Records when the sweeper scans locks next.
--
-- KEYS[1]  siding:{queue}:contended
-- ARGV     for each lock three: its name; when its scan was due, us; in how many us the next
--          one is due, or '' when nobody waits for it
--
-- Guarantee: a lock stays in the list if a task has come to wait for it meanwhile.

local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local next = {}
for i = 1, #ARGV, 3 do
  if ARGV[i + 2] ~= '' then
    next[#next + 1], next[#next + 2] = string.format('%.0f', now + ARGV[i + 2]), ARGV[i]
  else
    local at = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if at and tonumber(at) == tonumber(ARGV[i + 1]) then redis.call('ZREM', KEYS[1], ARGV[i]) end
  end
end
if #next > 0 then redis.call('ZADD', KEYS[1], 'XX', unpack(next)) end
redis.call('EXPIRE', KEYS[1], 10800)
return redis.status_reply('OK')
