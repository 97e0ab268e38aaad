-- Refuses a former holder of a lock. This text comes before a user's script, which then runs only
-- for a fence that is not below the highest seen.
--
-- KEYS[1]  fence    the highest fence seen, as digits
-- ARGV[1]  the caller's fence, above 0, as digits
-- All others are the user's: these two are taken out first.
--
-- Returns what the user's script returns, or one of these errors, with nothing
-- written:
--   STALEFENCE <seen>   a higher fence has been seen
--   BADFENCE <what>     KEYS[1] holds <what> instead of a fence
--
-- Guarantees: KEYS[1] never falls and does not expire; it is raised before the
-- user's script begins.
--
-- Fences are compared as digits: Lua's numbers do not hold every 64-bit one.

do
  local key, fence = table.remove(KEYS, 1), table.remove(ARGV, 1)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' then
    local seen = kind == 'string' and redis.call('GET', key)
    if not seen then return redis.error_reply('BADFENCE a ' .. kind) end
    if not string.find(seen, '^[1-9]%d*$') then return redis.error_reply('BADFENCE another string') end
    if #seen > #fence or #seen == #fence and seen > fence then
      return redis.error_reply('STALEFENCE ' .. seen)
    end
  end
  redis.call('SET', key, fence)
end
