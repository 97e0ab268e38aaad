-- What the scripts that reserve a lock have in common; it is put into each of them
-- where they name it, with take.lua and join.lua in front. Their keys are the same:
--
-- KEYS[1]  lock     the token of the holder, or a reservation
-- KEYS[2]  grant    the last fencing token; a trailing '*' says that the lock
--                   has been reserved since it was last granted
-- KEYS[3]  line     sorted set of waiters by ticket
-- KEYS[4]  paused   likewise: waiters that were set aside, as their group is paused
--
-- A waiter is told of its turn in one of three ways.
--   'siding-call:<listener>:<number>' is a goroutine that listens on the channel
--     'siding-call:<listener>'. It comes when its name is published there.
--   'siding-task:<queue>:<id>' is a parked task. One who can reach its queue wakes it: these
--     scripts, where the function summon(waiter, ticket, start) comes before this; or else the
--     client, by hand; or else whoever listens on 'siding-task:<queue>'.
--   Any other name is called by hand only.
-- summon returns 'called'; 'gone' where the waiter cannot come any more; 'paused' where it
-- cannot come for now; 'begun' and {its holder's name, ...} where it has begun already, by
-- which the lock is its; or anything else where it has to be called by hand after all.
--
-- start is {id of the next token, ttl of the lock in ms, how long the grant is kept in ms,
-- and what else summon wants to know}, or nil.

local lock, grant, line, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function begins(s, prefix) return string.sub(s, 1, #prefix) == prefix end

-- Sets aside all waiters of the waiter's group, which is paused. They keep their tickets.
local function set_aside(waiter, keep)
  local group, from, looked = (channel(waiter) or waiter) .. ':', 0
  repeat
    local some = redis.call('ZRANGE', line, from, from + 499, 'WITHSCORES')
    local moved, waiters = {}, {}
    for i = 1, #some, 2 do
      if begins(some[i] .. ':', group) then
        waiters[#waiters + 1] = some[i]
        moved[#moved + 1], moved[#moved + 2] = some[i + 1], some[i]
      end
    end
    if #waiters > 0 then
      redis.call('ZADD', paused, unpack(moved))
      redis.call('ZREM', line, unpack(waiters))
    end
    looked = #some / 2
    from = from + looked - #waiters
  until looked < 500
  redis.call('PEXPIRE', paused, keep)
end

-- What is published of a parked task's turn.
local function turn(ticket, reservation) return ticket .. '\n' .. lock .. '\n' .. reservation end

-- Tells a channel of a turn. Returns whether somebody heard.
local function published(waiter, message, cluster)
  local heard = redis.pcall('PUBLISH', channel(waiter), message) -- an error where an ACL forbids it
  return type(heard) == 'number' and (heard > 0 or cluster)
end

-- Tells a waiter that the lock is about to be reserved for it. Returns whether it comes;
-- whether the client has to call it; and what is known of it if it has begun.
local function tell(waiter, ticket, reservation, by_hand, cluster, keep, start)
  if begins(waiter, 'siding-call:') then
    redis.call('ZREM', line, waiter)
    return published(waiter, waiter, cluster)
  end
  if summon then
    local outcome, begun = summon(waiter, ticket, start)
    if outcome == 'paused' then
      set_aside(waiter, keep)
      return false
    end
    if outcome == 'called' or outcome == 'gone' or outcome == 'begun' then
      redis.call('ZREM', line, waiter)
      return outcome ~= 'gone', false, begun
    end
  end
  if by_hand then return true, true end
  -- It stays in line until it has been woken.
  return channel(waiter) and published(waiter, turn(ticket, reservation), cluster)
end

-- Keeps the lock for the waiter that the reservation names, until the grace has passed.
local function kept(reservation, grace, keep)
  redis.call('SET', lock, reservation, 'PX', grace)
  local last = string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
  redis.call('SET', grant, last .. '*', 'PX', keep)
end

-- Returns the first in line from a place on, its ticket and its place; nothing when there is
-- none among the first 2,000: it takes 0.5 us for each. Those of the groups in deaf are passed
-- over, but me.
local function first_from(place, me, deaf)
  local some = redis.call('ZRANGE', line, place, place, 'WITHSCORES')
  while some[1] and place < 2000 do
    for i = 1, #some, 2 do
      if some[i] == me or not deaf[channel(some[i]) or ''] then return some[i], some[i + 1], place end
      place = place + 1
    end
    some = redis.call('ZRANGE', line, place, place + 499, 'WITHSCORES')
  end
end

-- Keeps the lock, which nobody holds, for the first in line who can come.
--   me       the waiter that asks, '' for none
--   by_hand  whether the client calls those who are not told otherwise; else they are passed
--            over, and keep their place
--   cluster  whether there may be listeners that PUBLISH does not count
-- Returns the waiter, its reservation and, if it has to be called by hand, its ticket;
-- me, and no more, when it is me; nothing when nobody can come; where the waiter has begun,
-- {its token, its fence, ...} in the end.
local function reserve(me, by_hand, cluster, nonce, grace, keep, start)
  -- The first hundred are each asked. Behind them one of each group is, so that a long line of
  -- those whom nobody tells costs little. Who stands behind 2,000 of them comes by itself.
  local place, passed, deaf = 0, 0, {}
  while true do
    local waiter, score, at = first_from(place, me, passed < 100 and {} or deaf)
    if not waiter or waiter == me then return waiter end
    place = at
    local ticket = digits(tonumber(score))
    local reservation = nonce .. digits(us()) .. ':' .. waiter
    local comes, calls, begun = tell(waiter, ticket, reservation, by_hand, cluster, keep, start)
    if begun then
      local token = 'siding:' .. start[1] .. ':' .. table.remove(begun, 1)
      redis.call('SET', lock, token, 'PX', start[2])
      return waiter, nil, nil, {token, fenced(grant, start[3]), unpack(begun)}
    end
    if comes then
      kept(reservation, grace, keep)
      return waiter, reservation, calls and ticket
    end
    if redis.call('ZSCORE', line, waiter) then
      place, passed, deaf[channel(waiter) or ''] = place + 1, passed + 1, true
    end
  end
end

-- Passes on the lock, which is the caller's to pass on: keeps it for the first
-- in line who can come, or else frees it. Returns {1} when there is nobody to
-- call, {2, reservation, waiter, ticket} when that waiter has to be called,
-- {3, token, fence, ...} when one has begun.
local function pass_on(by_hand, cluster, nonce, grace, keep, start)
  local waiter, reservation, ticket, begun = reserve('', by_hand, cluster, nonce, grace, keep, start)
  if not waiter then redis.call('DEL', lock) end
  if begun then return {3, unpack(begun)} end
  if not ticket then return {1} end
  return {2, reservation, waiter, ticket}
end

-- What pass_on returned when it made value. Who was called is in the line no more. A waiter
-- who is still in line and is not called by hand is told again.
local function passed_on(value, by_hand, cluster)
  local _, waiter = reserved(value)
  local ticket = redis.call('ZSCORE', line, waiter)
  if not ticket then return {1} end
  ticket = digits(tonumber(ticket))
  if by_hand then return {2, value, waiter, ticket} end
  if channel(waiter) then published(waiter, turn(ticket, value), cluster) end
  return {1}
end

