-- Locks: who holds one, whether it may be taken, taking it and renewing it. A lock with a rule is held by permits,
-- which are keys like that of a lock without.
--
--   <lock>                the token of its holder, or a reservation; LIMITED while a permit is in use
--   {<lock>}:fence        the last fencing token; with a '*' behind it, if the lock has been reserved since
--   {<lock>}:permit:<n>   a permit: the token of its holder, or a reservation
--   {<lock>}:permits      hash of the permits in use: n by fence, 0 for a reservation
--   {<lock>}:starts       list of when a permit was taken, us, the latest first; only with rates
--
-- A token is 'siding:<unique>:<holder>', and 'siding:revoked-<unique>:<holder>' once an operator has revoked it. A
-- reservation is 'siding-reserved:<call that made it>:<when, us>:<waiter>'.
--
-- Comes after common.lua. Some functions need what the script has to define before:
--
--   take_lock, renew_lock  ttl and fence_ttl, ms, as texts: Redis formats numbers slowly, as fractions
--   rule_of, room          prefix of the locks' keys; limits and overrides, which have for each pattern of resources a line
--                          break, the pattern, a tab, and a rule; see parse_rule. Of a lock whose rule is in rules: none

local FOREIGN = 1000000        -- us: so often a lock is looked at whose holder may leave without telling
local PAUSED = 60000000        -- us: so often one is looked at of which nobody may hold a permit
local PERMITS_KEPT = 172800000 -- ms: as no lease lasts
local LIMITED = 'siding-limited' -- what a lock holds while others hold permits of it, for programs that know of none

-- Makes the next fence of a lock: the time in us, or one more than the last. Those of a script differ. Returns the last
-- one, too, or 0.
local fences = 0
local function fenced(lock)
  local key = beside(lock, 'fence')
  fences = fences + 1
  local fence = digits(now + fences)
  local before, last = try('SET', key, fence, 'PX', fence_ttl, 'GET'), 0
  if type(before) == 'table' and before.err then
    troubles[#troubles + 1] = key .. ': ' .. before.err
    call('SET', key, fence, 'PX', fence_ttl)
  elseif before then
    last = tonumber(string.match(before, '^%d+') or '0')
    if last >= tonumber(fence) then
      fence = digits(last + 1)
      call('SET', key, fence, 'PX', fence_ttl)
    end
  end
  return fence, last
end

-- The last fence of a lock, 0 if it is not known; and whether the lock has been reserved since.
local function last_fence(lock)
  local text = try('GET', beside(lock, 'fence'))
  local fence, mark = string.match(type(text) == 'string' and text or '', '^(%d+)(%*?)$')
  return tonumber(fence or 0), mark == '*'
end

-- What a lock holds; a table if that is no text.
local function value_of(lock) return try('GET', lock) end

-- Since when a value reserves a lock, and for whom; nothing if it does not reserve it.
local function reserved(value)
  if type(value) ~= 'string' or not begins(value, 'siding-reserved:') then return end
  local since, waiter = string.match(value, '^siding%-reserved:[^:]+:(%d+):(.*)$')
  return tonumber(since), waiter
end

-- In how many us somebody should look at a held lock whose value is this: when it expires, or soon if its
-- holder is a program that tells nobody when it leaves. A lock is there in the ms in which its time ends, and gone in
-- the next; it is not looked at again by this script.
local function look_in(lock, value)
  local left = call('PTTL', lock)
  if left < 0 then return FOREIGN end
  left = math.max(left, 1) * 1000
  if type(value) == 'string' and begins(value, 'siding:') then return left end
  return math.min(left, FOREIGN)
end

local function permit_of(lock, n) return in_queue(lock) and lock .. ':permit{' .. n .. '}' or beside(lock, 'permit:' .. n) end
local function permits_of(lock) return beside(lock, 'permits') end
local function number_of(permit) return string.match(permit, '(%d+)}?$') end

-- The lock of a permit; the key itself if it is that of a lock. The name of a resource has no braces.
local function lock_of(key)
  if in_queue(key) then return string.match(key, '^(.*):permit{%d+}$') or key end
  return string.match(key, '^{(.*)}:permit:%d+$') or key
end

-- The rule of the longest pattern that fits a resource: the resource itself, or a class such as 'account:*'.
local function find(patterns, resource)
  local function of(pattern)
    local _, tab = string.find(patterns, '\n' .. pattern .. '\t', 1, true)
    return tab and string.match(patterns, '^[^\n]*', tab + 1)
  end
  local found, class = of(resource), string.match(resource, '^(.*:)')
  while not found and class do
    found, class = of(class .. '*'), string.match(string.sub(class, 1, -2), '^(.*:)')
  end
  return found or of('*')
end

-- Returns {limit, {{starts, period in us}, ...}} of a rule '<limit> <starts>/<period> ...'; false for ''. rates is another
-- text to have the rates from.
local function parse_rule(text, rates)
  local rule = {limit = tonumber(string.match(text, '^%d+') or ''), rates = {}}
  if not rule.limit then return false end
  for starts, period in string.gmatch(rates or text, '(%d+)/(%d+)') do rule.rates[#rule.rates + 1] = {tonumber(starts), tonumber(period)} end
  return rule
end

local rules = {} -- by lock; false for none

-- Returns the rule of a lock; false for one holder at a time. That of an operator counts more, but keeps the rates if it
-- has none.
local function rule_of(lock)
  if rules[lock] ~= nil then return rules[lock] end
  if limits == '' and overrides == '' then return false end
  local resource = string.sub(lock, #prefix + 1)
  local own, over = find(limits, resource), find(overrides, resource)
  if begins(resource, 'siding-') then own, over = nil, nil end
  local rule = false
  if own or over then
    rule = parse_rule(over or own, over and string.find(over, '/', 1, true) and over or own or '')
    if rule.limit == 1 and #rule.rates == 0 then rule = false end
  end
  rules[lock] = rule
  return rule
end

-- Returns from when on rates allow another start, us; 0 for now. Each reservation is a start that may come at any time.
local function next_start(lock, rates, reservations)
  local from = 0
  for _, rate in ipairs(rates) do
    local before = rate[1] > reservations and call('LINDEX', beside(lock, 'starts'), rate[1] - reservations - 1)
    if before or rate[1] <= reservations then from = math.max(from, (before and tonumber(before) or now) + rate[2]) end
  end
  return from > now and from or 0
end

-- Returns the key by which a lock may be held now: its own, or a free permit. Else nil, what keeps it, and when
-- somebody should look again, at the latest. Of a lock with permits the fourth is {used: how many are; reservations: how
-- many of these; key: that of the permit which expires first; value: of that; from: when the rates allow a start, if they
-- keep it}.
local function room(lock)
  local rule, value = rule_of(lock), value_of(lock)
  if not rule and not value then return lock end
  -- Somebody has the whole lock, perhaps from before the rule; or permits are in use, and this caller knows no rule.
  if value and (value ~= LIMITED or not rule) then return nil, value, now + look_in(lock, value) end
  local permits, taken, over, first = {used = 0, reservations = 0}, {}, {}, nil
  for _, number in ipairs(call('HKEYS', permits_of(lock))) do
    local key = permit_of(lock, number)
    local holder = value_of(key)
    if holder then
      taken[number], permits.used = true, permits.used + 1
      if reserved(holder) then permits.reservations = permits.reservations + 1 end
      local left = look_in(key, holder)
      if not first or left < first then first, permits.key, permits.value = left, key, holder end
    else
      over[#over + 1] = number
    end
  end
  if #over > 0 then call('HDEL', permits_of(lock), unpack(over)) end
  if permits.used >= rule.limit then return nil, permits.value or LIMITED, now + (first or PAUSED), permits end
  local from = next_start(lock, rule.rates, permits.reservations)
  if from > 0 then
    permits.from = from
    return nil, LIMITED, from, permits
  end
  local number = 1
  while taken[tostring(number)] do number = number + 1 end
  return permit_of(lock, number), nil, nil, permits
end

-- Writes down that a permit is in use for so many ms.
local function keep_permit(key, lock, fence, lasts)
  call('HSET', permits_of(lock), number_of(key), fence)
  call('PEXPIRE', permits_of(lock), PERMITS_KEPT)
  local value = value_of(lock)
  if (not value or value == LIMITED) and call('PTTL', lock) < tonumber(lasts) then call('SET', lock, LIMITED, 'PX', lasts) end
end

-- Takes a lock by a key that room has returned. Returns the fence, and the last one before it.
local function take_lock(key, token)
  local lock = lock_of(key)
  call('SET', key, token, 'PX', ttl)
  local fence, before = fenced(lock)
  if key == lock then return fence, before end
  keep_permit(key, lock, fence, ttl)
  local most, longest = 0, 0
  for _, rate in ipairs(rule_of(lock).rates) do most, longest = math.max(most, rate[1]), math.max(longest, rate[2]) end
  if most > 0 then
    local starts = beside(lock, 'starts')
    call('LPUSH', starts, digits(now))
    call('LTRIM', starts, 0, most - 1)
    call('PEXPIRE', starts, math.ceil(longest / 1000) + 1000) -- a second, for a clock that steps
  end
  return fence, before
end

-- Deletes the key by which a lock is held or reserved.
local function give_up(key)
  local lock = lock_of(key)
  call('DEL', key)
  if key == lock then return end
  call('HDEL', permits_of(lock), number_of(key))
  if call('EXISTS', permits_of(lock)) == 0 and value_of(lock) == LIMITED then call('DEL', lock) end
end

-- Returns the first key of a lock whose value fits, and that value: the key that the caller knows, whose value this is; or
-- a permit.
local function find_key(key, value, fits)
  if fits(value) then return key, value end
  if value == LIMITED then
    for _, number in ipairs(call('HKEYS', permits_of(key))) do
      local permit = permit_of(key, number)
      value = value_of(permit)
      if fits(value) then return permit, value end
    end
  end
  return nil
end

-- Returns the key by which a token holds a lock: the one that its holder knows; or a permit, if the holder does not know
-- which it was given. Nothing if it holds none. The second is true if an operator has revoked it: then the token holds the
-- lock until its holder returns, but may not renew it.
local function held_by(key, token)
  if key == '' then return nil end
  local value = value_of(key)
  if value == token then return key, false end
  local revoked = 'siding:revoked-' .. string.sub(token, 8)
  key, value = find_key(key, value, function(value) return value == token or value == revoked end)
  return key, value == revoked
end

-- Returns the key of a lock that is reserved for a waiter, and the reservation.
local function reserved_for(lock, waiter)
  return find_key(lock, value_of(lock), function(value)
    local _, whose = reserved(value)
    return whose == waiter
  end)
end

-- Gives the key by which a token holds a lock another ttl. Returns false if another program has taken the lock.
local function renew_lock(key)
  local lock = lock_of(key)
  call('PEXPIRE', key, ttl)
  call('PEXPIRE', beside(lock, 'fence'), fence_ttl)
  if key == lock then return true end
  if value_of(lock) ~= LIMITED then return false end
  if call('PTTL', lock) < tonumber(ttl) then call('PEXPIRE', lock, ttl) end
  call('PEXPIRE', permits_of(lock), PERMITS_KEPT)
  return true
end

return FOREIGN, LIMITED, fenced, last_fence, value_of, reserved, permit_of, permits_of, number_of, lock_of, parse_rule, rules, rule_of, next_start, room, keep_permit, take_lock, give_up, held_by, reserved_for, renew_lock
