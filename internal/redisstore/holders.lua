-- Lists who holds a lock with a rule. The text comes before that of look.lua, too.
--
-- KEYS[1]  lock
-- KEYS[2]  permits  the hash of its permits, see permits.lua
--
-- Returns for each permit that is held or reserved {its number, 'held' or 'reserved', the name of the
-- holder or the waiter, its fence or '0', ms left, 1 if the lease was revoked, since when in us or '0'},
-- in the order of their numbers. A holder without a permit, from before the rule, has the number 0 and
-- the fence '0'.
--
-- Guarantees: it changes nothing. It returns no token.

local function holders_of(lock, permits)
  local all, found = redis.call('HGETALL', permits), {}
  for i = 1, #all, 2 do
    local key = '{' .. lock .. '}:permit:' .. all[i]
    local value = redis.call('GET', key) or ''
    local at, waiter = string.match(value, '^siding%-reserved:[^:]+:(%d+):(.*)$')
    local name = waiter or string.match(value, '^siding:[^:]*:(.*)$')
    if name then
      found[#found + 1] = {tonumber(all[i]), waiter and 'reserved' or 'held', name, waiter and '0' or all[i + 1],
        redis.call('PTTL', key), string.find(value, '^siding:revoked%-') and 1 or 0, at or all[i + 1]}
    end
  end
  local value = redis.pcall('GET', lock)
  local name = type(value) == 'string' and string.match(value, '^siding:[^:]*:(.*)$')
  if name then
    found[#found + 1] = {0, 'held', name, '0', redis.call('PTTL', lock), string.find(value, '^siding:revoked%-') and 1 or 0, '0'}
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  return found
end
