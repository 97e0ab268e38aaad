-- Takes a permit of a lock with a rule, or joins the wait queue. It does for such a lock what
-- acquire.lua does for one without, and has its KEYS and ARGV, and
--
-- ARGV[12] rule, see permits.lua
--
-- Returns {1, fence, time since the reservation, its nonce, number of the permit} when held, else
-- {0, value, ms left, its fence, position, ticket, '' or a reservation whose waiter the client has
-- to wake, that waiter, its ticket, the key of its permit, how many permits are held or reserved, in
-- how many ms the rates allow a start or -1}. The value is that of the permit which expires first, ''
-- if none is held.
--
-- Guarantees: at most as many permits are held or reserved as the rule says, and in no period do
-- more start. Those who were granted a permit before the rule was lowered keep it. A waiter for whom
-- one was reserved before that waits on under its ticket, if the rule does not let it start now. A
-- program on the plain protocol excludes all others. Else as acquire.lua.

-- (take.lua)
-- (join.lua)
-- (queue.lua)
local token, ttl, waiter, nonce, timeout, retention = ARGV[1], ARGV[2], ARGV[4], ARGV[8], ARGV[9], ARGV[10]
base, rule = lock, rule_of(ARGV[12])
local exclusive = not to_permit(base, grant)
local found, used, reservations = permits_of(base)

-- Takes a permit, which is free or was reserved by a call of the nonce by.
local function hold(number, since, by)
  lock = permit_key(base, number)
  redis.call('SET', lock, token, 'PX', ttl)
  if waiter ~= '' then redis.call('ZREM', queue, waiter) end
  local fence = fenced(grant, ARGV[3])
  keep_permit(lock, base, fence, ttl)
  count_start(base, rule.rates)
  return {1, fence, since and digits(math.max(0, tonumber(fence) - since)) or '-1', by or '', number}
end

-- Joins the wait queue. value is what keeps the caller from the lock, for so many ms.
local function wait(value, left, fence, wake, later)
  local position, ticket = 0, '0'
  if waiter ~= '' then position, ticket = join(queue, paused, waiter, ARGV[5], ARGV[11], retention) end
  local _, count = permits_of(base)
  return {0, value, left, fence, position, ticket, wake[1], wake[2], wake[3], wake[4], count, later or -1}
end

local wake = {'', '', '0', ''}
for number, value in pairs(found) do
  if value == token then -- an earlier try of this call has taken it
    redis.call('PEXPIRE', permit_key(base, number), ttl)
    return {1, redis.call('HGET', '{' .. base .. '}:permits', number), '-1', '', number}
  end
  local since, whose, by = reserved(value)
  if since and waiter ~= '' and whose == waiter then
    -- The limit or the rates may have been lowered since. Of those who come by reservations the first
    -- may start. A waiter for whom its own release kept the permit (store.TimerNonce) is in the log.
    local counted = string.sub(by, 1, 6) == 'timer-'
    local room = used - reservations < rule.limit
    if room and (counted or next_start(base, rule.rates, 0, us()) == 0) then return hold(number, since, by) end
    free(permit_key(base, number), base)
    used, reservations = used - 1, reservations - 1
    if reservations == 0 then unmark(grant) end
  end
  if begins(value, nonce) then
    local waits = redis.call('ZSCORE', queue, whose)
    if waits then wake = {value, whose, digits(tonumber(waits)), permit_key(base, number)} end
  end
end

if exclusive then return wait(redis.call('GET', base), redis.call('PTTL', base), '0', wake) end

local number, later
if wake[1] == '' then number, later = free_permit(base, rule) end
while number do
  if waiter == '' or redis.call('EXISTS', queue, paused) == 0 then return hold(number) end
  resume(queue, paused, waiter, retention)
  local _, _, coming = permits_of(base)
  if coming == 0 and string.find(redis.call('GET', grant) or '', '*', 1, true) then return hold(number) end
  lock = permit_key(base, number)
  local first, reservation, ticket = reserve(waiter, ARGV[6] == '1', ARGV[7] == '1', nonce, timeout, retention)
  if not reservation then return hold(number) end
  if ticket then
    wake = {reservation, first, ticket, lock}
    break
  end
  number, later = free_permit(base, rule)
end

local value, left, fence = '', 0, '0'
for n, v in pairs(permits_of(base)) do
  local ms = redis.call('PTTL', permit_key(base, n))
  if value == '' or ms < left then
    value, left, fence = v, ms, redis.call('HGET', '{' .. base .. '}:permits', n) or '0'
  end
end
return wait(value, left, fence, wake, later)
