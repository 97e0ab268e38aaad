-- Has tasks wait for a lock that is busy, in a script of another package. lock.lua and join.lua come
-- before it, and say what with is.

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

-- Has newcomers join the wait queue of a lock, in this order. Their group has just joined it by
-- join_queue, and none of them has waited before. Returns their positions and their tickets.
local function join_all(with, resource, waiters)
  local _, _, queue = lock_keys(with, resource)
  local before, t = redis.call('ZCARD', queue), redis.call('TIME')
  local tail = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  local first = math.max(t[1] * 1000000 + t[2], tonumber(tail[2] or '0') + 1)
  local scored, positions, tickets = {}, {}, {}
  for i, waiter in ipairs(waiters) do
    positions[i], tickets[i] = before + i, digits(first + i - 1)
    scored[2 * i - 1], scored[2 * i] = tickets[i], waiter
  end
  if redis.call('ZADD', queue, 'NX', unpack(scored)) < #waiters then -- an earlier task of the same id was there
    for i, waiter in ipairs(waiters) do
      positions[i], tickets[i] = redis.call('ZRANK', queue, waiter) + 1, digits(tonumber(redis.call('ZSCORE', queue, waiter)))
    end
  end
  redis.call('PEXPIRE', queue, with[4])
  return positions, tickets
end

