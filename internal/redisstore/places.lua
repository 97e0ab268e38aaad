-- Looks for waiters in their lines, and may put those back who are in none.
--
-- KEYS     for each waiter two: line and paused, see line.lua
-- ARGV[1]  '1' to put them back
-- ARGV[2]  how long a line is kept, ms
-- ARGV[3]  and those that follow: for each waiter its name and its ticket
--
-- Returns for each 1 if it was in neither, else 0.
--
-- Guarantee: one who is in line keeps its place.

local missing = {}
for i = 1, #KEYS, 2 do
  local line, waiter = KEYS[i], ARGV[i + 2]
  local there = redis.call('ZSCORE', line, waiter) or redis.call('ZSCORE', KEYS[i + 1], waiter)
  if not there and ARGV[1] == '1' then
    redis.call('ZADD', line, ARGV[i + 3], waiter)
    redis.call('PEXPIRE', line, ARGV[2])
  end
  missing[#missing + 1] = there and 0 or 1
end
return missing
