-- Takes the lock of a resource in a script of another package, which finds the resource in the
-- same step. take.lua comes before it.
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

