-- Reads a lock and its wait queue.
--
-- KEYS[1]  lock
-- KEYS[2]  grant    the last fencing token
-- KEYS[3]  queue    the wait queue
-- KEYS[4]  paused   waiters of paused groups
-- KEYS[5]  revoked  hash of what an operator did to the lock last
-- KEYS[6]  waits    what the work of the holder waits for, see note.lua
-- KEYS[7]  permits  the hash of its permits, see permits.lua
-- ARGV[1]  index of the first waiter that is listed, 0 for the first in the wait queue; those of
--          paused groups come behind the others
-- ARGV[2]  how many waiters are listed
-- ARGV[3]  a waiter whose position is asked for, or ''
--
-- Returns {now in us, 'held', 'reserved', 'foreign', 'free' or 'limited', the holder or the waiter that the
-- lock is reserved for, since when in us or '0', ms left or -1 for no end, the last fence or '0',
-- how many are in the wait queue, how many of paused groups, the first ticket in us or '0' (that of a
-- paused group only if the wait queue is empty), how long all have waited in us, {at, by, reason,
-- holder of the revocation, if any}, {waiter, ticket, ... of the wait queue}, {waiter, ticket, ... of
-- paused groups}, the position of the waiter or 0, 1 if that is of a paused group, its ticket in us or
-- '0', 1 if the lock is revoked and its holder has not released it yet, the note of the holder on its
-- waits or '', what holders.lua returns of the permits}.
--
-- A lock is 'limited' while it has the mark of a lock with a rule. The list of permits is empty for a
-- lock that never had a rule.
--
-- Guarantees: it changes nothing. It returns no token. It reads at most 32 waiters of each of the
-- two queues, those that it lists, and all permits.

local lock, grant, queue, paused, revoked, waits = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local function digits(n) return string.format('%.0f', n) end
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]

-- Returns how many waiters a queue has, the first ticket, and how long all of them have waited.
-- Of more than 32 waiters it reads five at ranks of equal distance, and applies Simpson's rule.
local function sum(key)
  local n = redis.call('ZCARD', key)
  if n == 0 then return 0, 0, 0 end
  local first, total = nil, 0
  if n <= 32 then
    local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 2, #all, 2 do total = total + math.max(0, now - all[i]) end
    return n, tonumber(all[2]), total
  end
  for i, weight in ipairs({1, 4, 2, 4, 1}) do
    local rank = math.floor((i - 1) * (n - 1) / 4)
    local ticket = tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
    first = first or ticket
    total = total + weight * math.max(0, now - ticket)
  end
  return n, first, total / 12 * n
end

local value = redis.pcall('GET', lock) -- an error if another program has put another type there
local state, holder, since, revoking, note = 'free', '', '0', 0, ''
local last = string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
if type(value) == 'table' then
  state = 'foreign'
elseif value then
  local at, waiter = string.match(value, '^siding%-reserved:[^:]+:(%d+):(.*)$')
  local label = string.match(value, '^siding:[^:]*:(.*)$')
  if at then
    state, holder, since = 'reserved', waiter, at
  elseif label then
    state, holder, since = 'held', label, last
    if string.find(value, '^siding:revoked%-') then revoking = 1 end
    note = redis.call('GET', waits) or ''
    if string.match(note, '^%d+') ~= last then note = '' end -- that of an earlier holder
  else
    state = value == 'siding-limited' and 'limited' or 'foreign'
  end
end
local permits = {}
if redis.call('EXISTS', KEYS[7]) == 1 then permits = holders_of(lock, KEYS[7]) end

local waiting, first, waited = sum(queue)
local away, first_away, waited_away = sum(paused)
if first == 0 then first = first_away end

local from, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local some, rest = {}, {}
if count > 0 then
  some = redis.call('ZRANGE', queue, from, from + count - 1, 'WITHSCORES')
  local left = count - #some / 2
  if left > 0 then
    local at = math.max(0, from - waiting)
    rest = redis.call('ZRANGE', paused, at, at + left - 1, 'WITHSCORES')
  end
  for _, list in ipairs({some, rest}) do -- Redis may write a score as 1.8e+15
    for i = 2, #list, 2 do list[i] = digits(tonumber(list[i])) end
  end
end

local position, of_paused, ticket = 0, 0, '0'
if ARGV[3] ~= '' then
  local key, rank = queue, redis.call('ZRANK', queue, ARGV[3])
  if rank then
    position = rank + 1
  elseif away > 0 and redis.call('ZSCORE', paused, ARGV[3]) then
    key, of_paused = paused, 1
  end
  ticket = digits(tonumber(redis.call('ZSCORE', key, ARGV[3]) or '0'))
end

local taken = redis.call('HMGET', revoked, 'at', 'by', 'reason', 'holder')
taken = taken[1] and {taken[1], taken[2] or '', taken[3] or '', taken[4] or ''} or {}
return {digits(now), state, holder, since, redis.call('PTTL', lock), last, waiting, away, digits(first),
  digits(waited + waited_away), taken, some, rest, position, of_paused, ticket, revoking, note, permits}
