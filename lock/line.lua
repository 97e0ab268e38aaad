-- What the scripts that reserve a lock have in common; it is put in front of
-- each of them. Their keys are the same:
--
-- KEYS[1]  lock     the token of the holder, or a reservation
-- KEYS[2]  grant    the last fencing token; a trailing '*' says that the lock
--                   has been reserved since it was last granted
-- KEYS[3]  line     sorted set of waiters by ticket
--
-- A waiter called 'siding-call:<listener>:<number>' listens on the channel
-- 'siding-call:<listener>'. Every other waiter has to be called by hand, by the
-- client that is told of its reservation.

local function us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function digits(n) return string.format('%.0f', n) end

local function begins(s, prefix) return string.sub(s, 1, #prefix) == prefix end

-- Since when, and for whom, value reserves the lock; nothing when it does not.
local function reserved(value)
  local since, waiter = string.match(value or '', '^siding%-reserved:[^:]+:(%d+):(.*)$')
  return tonumber(since), waiter
end

local function channel(waiter) return string.match(waiter, '^siding%-call:[^:]+') end

-- Keeps the lock, which nobody holds, for the first in line who can come.
--   me       the waiter that asks, '' for none
--   by_hand  whether the client will call those who do not listen; else they
--            are passed over, and keep their place
--   cluster  whether there may be listeners that PUBLISH does not count
-- A listener is called here, and with that out of the line. One whom nobody
-- heard is gone. Returns the waiter, its reservation and its ticket; me, and
-- no more, when it is me; nothing when nobody can come.
local function reserve(me, by_hand, cluster, nonce, grace, keep)
  local passed = 0
  while passed < 100 do -- so that a long line of those who do not listen costs little
    local head = redis.call('ZRANGE', KEYS[3], passed, passed, 'WITHSCORES')
    local waiter, ticket = head[1], head[2]
    if not waiter or waiter == me then return waiter end
    local bell = channel(waiter)
    local comes = not bell and by_hand
    if bell then
      redis.call('ZREM', KEYS[3], waiter)
      local heard = redis.pcall('PUBLISH', bell, waiter) -- an error where an ACL forbids it
      comes = type(heard) == 'number' and (heard > 0 or cluster)
    end
    if comes then
      local reservation = nonce .. digits(us()) .. ':' .. waiter
      redis.call('SET', KEYS[1], reservation, 'PX', grace)
      local last = string.match(redis.call('GET', KEYS[2]) or '0', '^%d+') or '0'
      redis.call('SET', KEYS[2], last .. '*', 'PX', keep)
      return waiter, reservation, digits(tonumber(ticket))
    end
    if not bell then passed = passed + 1 end
  end
end

-- Passes on the lock, which is the caller's to pass on: keeps it for the first
-- in line who can come, or else frees it. Returns {1} when there is nobody to
-- call, {2, reservation, waiter, ticket} when that waiter has to be called.
local function pass_on(by_hand, cluster, nonce, grace, keep)
  local waiter, reservation, ticket = reserve('', by_hand, cluster, nonce, grace, keep)
  if not waiter then redis.call('DEL', KEYS[1]) end
  if not waiter or channel(waiter) then return {1} end
  return {2, reservation, waiter, ticket}
end

-- What pass_on returned when it made value.
local function passed_on(value)
  local _, waiter = reserved(value)
  if channel(waiter) then return {1} end
  return {2, value, waiter, redis.call('ZSCORE', KEYS[3], waiter) or '0'}
end

