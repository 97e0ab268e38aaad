-- Lets several hold a lock at once, and says how often one may start. This text is part of the
-- scripts with queue.lua, and comes before that. take.lua comes before it.
--
-- A lock with a rule is held by permits. Each permit is a key like that of a lock without a rule:
-- it has the token of a holder or a reservation, and expires. So the scripts release, renew and
-- reserve a permit as they do a lock. The permits of a lock share its wait queue and its fences.
--
-- The keys of the lock base are, beside those of queue.lua:
--
--   base                  MARK while a permit is held or reserved, until the last of them expires. So
--                         programs that do not know the rule find the lock busy.
--   {base}:permit:<n>     the nth permit
--   {base}:permits        hash of the permits that are held or reserved: n -> fence, 0 if reserved
--   {base}:starts         list of when a permit was granted, us, the latest first; only with rates
--
-- A rule is '<limit> <starts>/<period, us> ...'. At most limit permits are held or reserved at once.
-- In any period at most so many are granted. A rule that is '' is none.

local MARK = 'siding-limited'

-- How long the hash of permits is kept after the last grant or renewal, ms. No lease is as long.
local PERMITS_KEPT = 48 * 3600 * 1000

local function us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- Returns the lock of a permit; nothing for a key that is no permit's.
local function lock_of(key)
  if string.byte(key) == 123 then return string.match(key, '^{(.*)}:permit:%d+$') end
end

-- These are functions once with_permits was called. Most locks have no rule, and do not pay for them.
local permit_key, permits_of, coming_waiters, next_start, free_permit, next_sweep, keep_permit, to_permit, count_start, unmark, free

local function with_permits()
  function permit_key(base, number) return '{' .. base .. '}:permit:' .. number end

  -- Returns the values of the permits of a lock, by number; how many are held or reserved; how many of
  -- these are reserved; and the numbers of those that have expired. Changes nothing.
  function permits_of(base)
    local numbers = redis.call('HKEYS', '{' .. base .. '}:permits')
    local found, count, reservations = {}, #numbers, 0
    local keys, over = {}, {}
    if count == 0 then return found, 0, 0, over end
    for i, number in ipairs(numbers) do keys[i] = permit_key(base, number) end
    for i, value in ipairs(redis.call('MGET', unpack(keys))) do
      if not value then
        over[#over + 1] = numbers[i]
      else
        found[tonumber(numbers[i])] = value
        if reserved(value) then reservations = reservations + 1 end
      end
    end
    return found, count - #over, reservations, over
  end

  -- Returns the waiters for whom permits are reserved. Those whom a client wakes stay in the wait queue
  -- until then.
  function coming_waiters(base)
    local waiters = {}
    for _, value in pairs(permits_of(base)) do
      local _, waiter = reserved(value)
      if waiter then waiters[waiter] = true end
    end
    return waiters
  end

  -- Returns from when on the rates allow another start, us; 0 for now. Each reservation is a start
  -- that may come at any time.
  function next_start(base, rates, reservations, now)
    local at = 0
    for _, rate in ipairs(rates) do
      local starts, period = rate[1], rate[2]
      local before = starts > reservations and redis.call('LINDEX', '{' .. base .. '}:starts', starts - reservations - 1)
      if starts <= reservations then
        at = math.max(at, now + period)
      elseif before and before + period > now then
        at = math.max(at, before + period)
      end
    end
    return at
  end

  -- Returns the number of a permit that may be granted or reserved now. If there is none because of
  -- the rates, returns nil and in how many ms there is one.
  function free_permit(base, rule)
    local found, count, reservations, over = permits_of(base)
    if #over > 0 then redis.call('HDEL', '{' .. base .. '}:permits', unpack(over)) end
    if count >= rule.limit then return end
    local now = us()
    local at = next_start(base, rule.rates, reservations, now)
    if at > 0 then return nil, math.ceil((at - now) / 1000) end
    local number = 1
    while found[number] do number = number + 1 end
    return number
  end

  -- Returns in how many ms the client has to sweep the lock, 1 if a permit is free; nil if nobody waits, or
  -- if all permits are in use. For a script that gives up nothing: an answer that said so may be lost.
  function next_sweep(base, rule)
    if redis.call('EXISTS', KEYS[3], KEYS[4]) == 0 then return end
    local number, later = free_permit(base, rule)
    return number and 1 or later
  end

  -- Records that a permit is held or reserved for so many ms. fence is that of the holder, or '0'.
  function keep_permit(key, base, fence, ttl)
    redis.call('HSET', '{' .. base .. '}:permits', string.match(key, '%d+$'), fence)
    redis.call('PEXPIRE', '{' .. base .. '}:permits', PERMITS_KEPT)
    local mark = redis.call('GET', base)
    if not mark or mark == MARK and redis.call('PTTL', base) < tonumber(ttl) then redis.call('SET', base, MARK, 'PX', ttl) end
  end

  -- Gives the first permit to a holder or a reservation from before the lock had a rule. That one finds its
  -- permit by itself, see renew.lua and release.lua. Returns false if another program holds the lock, or
  -- if the lock never expires. Such a holder keeps all others out.
  function to_permit(base, grant)
    local value, left = redis.pcall('GET', base), redis.call('PTTL', base)
    if not value or value == MARK then return true end
    if type(value) ~= 'string' then return false end -- another program has put another type there
    local waits = reserved(value)
    if left < 0 or not waits and string.sub(value, 1, 7) ~= 'siding:' then return false end
    local found, number = permits_of(base), 1
    while found[number] do number = number + 1 end
    local fence = not waits and string.match(redis.call('GET', grant) or '0', '^%d+') or '0'
    redis.call('SET', permit_key(base, number), value, 'PX', math.max(1, left))
    redis.call('DEL', base)
    keep_permit(permit_key(base, number), base, fence, math.max(1, left))
    return true
  end

  -- Records that a permit is granted now.
  function count_start(base, rates)
    if #rates == 0 then return end
    local most, longest = 0, 0
    for _, rate in ipairs(rates) do most, longest = math.max(most, rate[1]), math.max(longest, rate[2]) end
    local starts = '{' .. base .. '}:starts'
    redis.call('LPUSH', starts, string.format('%.0f', us()))
    redis.call('LTRIM', starts, 0, most - 1)
    redis.call('PEXPIRE', starts, math.ceil(longest / 1000) + 1000) -- a second, for a clock that steps
  end

  -- Takes the mark of a reservation from the last fence.
  function unmark(grant)
    local last = string.match(redis.call('GET', grant) or '', '^(%d+)%*$')
    if last then redis.call('SET', grant, last, 'KEEPTTL') end
  end

  -- Gives up a permit. The mark goes with the last one.
  function free(key, base)
    redis.call('DEL', key)
    redis.call('HDEL', '{' .. base .. '}:permits', string.match(key, '%d+$'))
    local _, count = permits_of(base)
    if count == 0 and redis.call('GET', base) == MARK then redis.call('DEL', base) end
  end
end

-- Returns {limit, {{starts, period in us}, ...}}; nothing for no rule.
local function rule_of(text)
  local limit = string.match(text, '^%d+')
  if not limit then return end
  with_permits()
  local rates = {}
  for starts, period in string.gmatch(text, '(%d+)/(%d+)') do
    rates[#rates + 1] = {tonumber(starts), tonumber(period)}
  end
  return {limit = tonumber(limit), rates = rates}
end

