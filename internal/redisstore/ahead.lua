-- Takes the lock of a resource in a script of another package, in the step in which that
-- finds out about the resource. take.lua and join.lua come before it.
--
-- In what follows with is {prefix of locks' keys, ttl of the lock in ms, how long the grant
-- is kept in ms, how long the line is kept in ms}, and waiter the one in whose name the
-- caller takes what is reserved, and waits. In a Cluster the lock's keys may be out of
-- reach, which is an error.

local function keys_ahead(with, resource)
  local key = with[1] .. resource
  return key, '{' .. key .. '}:fence', '{' .. key .. '}:line', '{' .. key .. '}:paused'
end

-- Takes the lock, if that can be had at once.
--   resource  bytes that may be the name of one
--   id        what makes the token unique, without a colon
--   holder    at most 200 bytes
-- Returns {token, its fence, after a reservation the time since then in us, else '-1'}; nil
-- where it cannot be had, or not this way, and then what the lock holds.
local function take_ahead(with, resource, id, holder, waiter)
  if resource == '' or #resource > 512 or #holder > 200 or string.find(resource, '[{}%c]') then return end
  local key, grant, line, paused = keys_ahead(with, resource)
  local token = 'siding:' .. id .. ':' .. holder
  local fence, found = take(key, grant, line, paused, token, with[2], with[3], waiter)
  if fence then return {token, fence, found} end
  return nil, found
end

-- Says who holds a lock, of which value is what it holds, and whether it has been granted to
-- that one; nothing where it is another program, or nobody.
local function held_ahead(value)
  if reserved(value) then return 'the next in line', false end
  return string.match(value or '', '^siding:[^:]*:(.*)$'), true
end

-- Joins the line of a lock that holds value. came is when the waiter came first, or '0' for
-- now. Returns what acquire.lua returns of a refusal: {value, ms left, last fence, place,
-- ticket, waited us}.
local function join_ahead(with, resource, waiter, value, came)
  local key, grant, line, paused = keys_ahead(with, resource)
  local place, ticket, waited = join(line, paused, waiter, '0', came, with[4])
  local last = string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
  return {value, redis.call('PTTL', key), last, place, ticket, waited}
end

