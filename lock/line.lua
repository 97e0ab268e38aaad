-- What the scripts that reserve a lock have in common; it is put into each of them
-- where they name it, and take.lua in front. Their keys are the same:
--
-- KEYS[1]  lock     the token of the holder, or a reservation
-- KEYS[2]  grant    the last fencing token; a trailing '*' says that the lock
--                   has been reserved since it was last granted
-- KEYS[3]  line     sorted set of waiters by ticket
--
-- A waiter called 'siding-call:<listener>:<number>' listens on the channel
-- 'siding-call:<listener>'. Every other waiter has to be called by hand, by the
-- client that is told of its reservation; or by its function summon(waiter, ticket, seat),
-- which may come before this and returns 'called', 'gone' where the waiter cannot come,
-- 'seated' and {its holder's name, ...} where it has begun already, by which the lock is its;
-- or anything else where it has to be called by hand after all.
--
-- A seat is {id of the next token, ttl of the lock in ms, how long the grant is kept in ms,
-- and what else summon wants to know}, or nil.

local function us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local function begins(s, prefix) return string.sub(s, 1, #prefix) == prefix end

local function channel(waiter) return string.match(waiter, '^siding%-call:[^:]+') end

-- Calls a waiter who does not listen. Returns whether it comes, whether nobody has to call
-- it any more, by which it is out of the line, and what is known of it if it has begun.
local function summoned(waiter, ticket, seat)
  local outcome, begun
  if summon then outcome, begun = summon(waiter, ticket, seat) end
  local done = outcome == 'called' or outcome == 'gone' or outcome == 'seated'
  if done then redis.call('ZREM', KEYS[3], waiter) end
  return outcome ~= 'gone', done, begun
end

-- The same for one who listens. One whom nobody heard is gone.
local function published(waiter, cluster)
  redis.call('ZREM', KEYS[3], waiter)
  local heard = redis.pcall('PUBLISH', channel(waiter), waiter) -- an error where an ACL forbids it
  return type(heard) == 'number' and (heard > 0 or cluster), true
end

-- Keeps the lock, which nobody holds, for the first in line who can come.
--   me       the waiter that asks, '' for none
--   by_hand  whether the client calls those who do not listen; else they are passed
--            over, and keep their place
--   cluster  whether there may be listeners that PUBLISH does not count
-- Returns the waiter, its reservation and, if it has to be called by hand, its ticket;
-- me, and no more, when it is me; nothing when nobody can come; where the waiter has taken
-- the seat, {its token, its fence, ...} in the end.
local function reserve(me, by_hand, cluster, nonce, grace, keep, seat)
  local passed = 0
  while passed < 100 do -- so that a long line of those who do not listen costs little
    local head = redis.call('ZRANGE', KEYS[3], passed, passed, 'WITHSCORES')
    local waiter = head[1]
    if not waiter or waiter == me then return waiter end
    local ticket = digits(tonumber(head[2]))
    local comes, done, begun = false, false, nil
    if channel(waiter) then
      comes, done = published(waiter, cluster)
    elseif by_hand then
      comes, done, begun = summoned(waiter, ticket, seat)
    end
    if begun then
      local token = 'siding:' .. seat[1] .. ':' .. table.remove(begun, 1)
      redis.call('SET', KEYS[1], token, 'PX', seat[2])
      return waiter, nil, nil, {token, fenced(KEYS[2], seat[3]), unpack(begun)}
    end
    if comes then
      local reservation = nonce .. digits(us()) .. ':' .. waiter
      redis.call('SET', KEYS[1], reservation, 'PX', grace)
      local last = string.match(redis.call('GET', KEYS[2]) or '0', '^%d+') or '0'
      redis.call('SET', KEYS[2], last .. '*', 'PX', keep)
      return waiter, reservation, not done and ticket
    end
    if not done then passed = passed + 1 end
  end
end

-- Passes on the lock, which is the caller's to pass on: keeps it for the first
-- in line who can come, or else frees it. Returns {1} when there is nobody to
-- call, {2, reservation, waiter, ticket} when that waiter has to be called,
-- {3, token, fence, ...} when one has taken the seat.
local function pass_on(by_hand, cluster, nonce, grace, keep, seat)
  local waiter, reservation, ticket, seated = reserve('', by_hand, cluster, nonce, grace, keep, seat)
  if not waiter then redis.call('DEL', KEYS[1]) end
  if seated then return {3, unpack(seated)} end
  if not ticket then return {1} end
  return {2, reservation, waiter, ticket}
end

-- What pass_on returned when it made value. Who was called is in the line no more.
local function passed_on(value)
  local _, waiter = reserved(value)
  local ticket = redis.call('ZSCORE', KEYS[3], waiter)
  if not ticket then return {1} end
  return {2, value, waiter, ticket}
end

