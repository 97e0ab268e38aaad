-- Takes the lock of a resource in a script of another package, which finds the resource in the
-- same step. take.lua and join.lua come before it.
--
-- In these functions with is {prefix of locks' keys, ttl of the lock in ms, retention of the
-- fencing token in ms, retention of the wait queue in ms}. The caller takes a reservation, and
-- waits, under the name waiter. In a Cluster it is an error if another node has the lock's keys.

local function lock_keys(with, resource)
  local key = with[1] .. resource
  return key, '{' .. key .. '}:fence', '{' .. key .. '}:queue', '{' .. key .. '}:paused'
end

-- Takes the lock, if it is free or reserved for the waiter.
--   resource  bytes that may be the name of one
--   id        makes the token unique, without a colon
--   holder    at most 200 bytes
-- Returns {token, its fence, the time since the reservation, its nonce}, as take.lua returns them; or nil
-- and what the lock holds; or nothing if the lock cannot be taken by this function.
local function acquire_lock(with, resource, id, holder, waiter)
  if resource == '' or #resource > 512 or #holder > 200 or string.find(resource, '[{}%c]') then return end
  local key, grant, queue, paused = lock_keys(with, resource)
  local token = 'siding:' .. id .. ':' .. holder
  local fence, found, by = take(key, grant, queue, paused, token, with[2], with[3], waiter)
  if fence then return {token, fence, found, by} end
  return nil, found
end

-- Returns the name of the holder of a lock that holds value, and whether the lock was granted to
-- it. Returns nothing if another program holds the lock, or nobody.
local function lock_holder(value)
  if reserved(value) then return NEXT, false end
  return string.match(value or '', '^siding:[^:]*:(.*)$'), true
end

-- Joins the wait queue of a lock that holds value. came is when the waiter came first, or '0' for
-- now. Returns what acquire.lua returns of a busy lock: {value, ms left, last fence, position,
-- ticket}.
local function join_queue(with, resource, waiter, value, came)
  local key, grant, queue, paused = lock_keys(with, resource)
  local position, ticket = join(queue, paused, waiter, '0', came, with[4])
  local last = string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
  return {value, redis.call('PTTL', key), last, position, ticket}
end

