-- Locks: who holds one, whether it may be taken, taking it and renewing it. A lock with a rule is held by permits,
-- which are keys like that of a lock without.
--
--   <lock>                the token of its holder, or LIMITED while a permit is in use
--   {<lock>}:fence        the last fencing token
--   {<lock>}:permit:<n>   a permit: the token of its holder
--   {<lock>}:permits      hash of the permits in use: n by fence
--   {<lock>}:starts       list of when a permit was taken, us, the latest first; only with rates
--
-- Comes after common.lua, and after these: prefix of the locks' keys; ttl and fence_ttl, ms; limits and overrides, which
-- have for each pattern of resources a line break, the pattern, a tab, and a rule; see rule_of.
--
-- Defines ours, room, take_lock, held_by, renew_lock, look_in, rule_of, lock_of and value_of.

local FOREIGN = 1000000        -- us: so often a lock is looked at whose holder may leave without telling
local PAUSED = 60000000        -- us: so often one is looked at of which nobody may hold a permit
local PERMITS_KEPT = 172800000 -- ms: as no lease lasts
local LIMITED = 'siding-limited' -- what a lock holds while others hold permits of it, for programs that know of none

-- Calls a command on a sorted set of ours. If somebody has put another type there, that goes: upkeep finds
-- again what waits.
local function ours(command, key, ...)
  local reply = try(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  troubles[#troubles + 1] = key .. ': ' .. reply.err
  call('DEL', key)
  return call(command, key, ...)
end

-- Makes the next fence of a lock: the time in us, or one more than the last. Those of a script differ.
local fences = 0
local function fenced(lock)
  local key = beside(lock, 'fence')
  fences = fences + 1
  local fence = digits(now + fences)
  local before = try('SET', key, fence, 'PX', fence_ttl, 'GET')
  if type(before) == 'table' and before.err then
    troubles[#troubles + 1] = key .. ': ' .. before.err
    call('SET', key, fence, 'PX', fence_ttl)
  elseif before and not (#before == 16 and before < fence) then
    local last = tonumber(string.match(before, '^%d+') or '0')
    if last >= tonumber(fence) then
      fence = digits(last + 1)
      call('SET', key, fence, 'PX', fence_ttl)
    end
  end
  return fence
end

-- What a lock holds; a table if that is no text.
local function value_of(lock) return try('GET', lock) end

-- In how many us somebody should look at a held lock whose value is this: when it expires, or soon if its
-- holder is a program that tells nobody when it leaves. A lock is there in the ms in which its time ends, and gone in
-- the next; it is not looked at again by this script.
local function look_in(lock, value)
  local left = call('PTTL', lock)
  if left < 0 then return FOREIGN end
  left = math.max(left, 1) * 1000
  if type(value) == 'string' and string.sub(value, 1, 7) == 'siding:' then return left end
  return math.min(left, FOREIGN)
end

local function in_queue(key) return string.sub(key, 1, 8) == 'siding:{' end -- a lock in the slot of a queue
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

local rules = {} -- by lock; false for none

-- Returns {limit, {{starts, period in us}, ...}} of a lock; false for one holder at a time. A rule is
-- '<limit> <starts>/<period> ...'. That of an operator counts more, but keeps the rates if it has none.
local function rule_of(lock)
  if limits == '' and overrides == '' then return false end
  if rules[lock] ~= nil then return rules[lock] end
  local resource = string.sub(lock, #prefix + 1)
  local own, over = find(limits, resource), find(overrides, resource)
  if string.sub(resource, 1, 7) == 'siding-' then own, over = nil, nil end
  local rule = false
  if own or over then
    local rates = {}
    local text = over and string.find(over, '/', 1, true) and over or own or ''
    for starts, period in string.gmatch(text, '(%d+)/(%d+)') do rates[#rates + 1] = {tonumber(starts), tonumber(period)} end
    rule = {limit = tonumber(string.match(over or own, '^%d+')), rates = rates}
    if rule.limit == 1 and #rates == 0 then rule = false end
  end
  rules[lock] = rule
  return rule
end

-- Returns the key by which a lock may be held now: its own, or a free permit. Else nil, what keeps it, and when
-- somebody should look again, at the latest.
local function room(lock)
  local rule, value = rule_of(lock), value_of(lock)
  if not rule and not value then return lock end
  if value and (value ~= LIMITED or not rule) then return nil, value, now + look_in(lock, value) end
  local used, over, n, first = {}, {}, 0, nil
  for _, number in ipairs(call('HKEYS', permits_of(lock))) do
    local holder = value_of(permit_of(lock, number))
    if holder then
      used[number], n = true, n + 1
      local left = look_in(permit_of(lock, number), holder)
      if not first or left < first then first, value = left, holder end
    else
      over[#over + 1] = number
    end
  end
  if #over > 0 then call('HDEL', permits_of(lock), unpack(over)) end
  if n >= rule.limit then return nil, value or LIMITED, now + (first or PAUSED) end
  local from = 0
  for _, rate in ipairs(rule.rates) do
    local before = call('LINDEX', beside(lock, 'starts'), rate[1] - 1)
    if before then from = math.max(from, tonumber(before) + rate[2]) end
  end
  if from > now then return nil, LIMITED, from end
  local number = 1
  while used[tostring(number)] do number = number + 1 end
  return permit_of(lock, number)
end

-- Takes a lock by a key that room has returned. Returns the fence.
local function take_lock(key, token)
  local lock = lock_of(key)
  call('SET', key, token, 'PX', ttl)
  local fence = fenced(lock)
  if key == lock then return fence end
  call('HSET', permits_of(lock), number_of(key), fence)
  call('PEXPIRE', permits_of(lock), PERMITS_KEPT)
  if call('PTTL', lock) < ttl then call('SET', lock, LIMITED, 'PX', ttl) end
  local most, longest = 0, 0
  for _, rate in ipairs(rule_of(lock).rates) do most, longest = math.max(most, rate[1]), math.max(longest, rate[2]) end
  if most > 0 then
    local starts = beside(lock, 'starts')
    call('LPUSH', starts, digits(now))
    call('LTRIM', starts, 0, most - 1)
    call('PEXPIRE', starts, math.ceil(longest / 1000) + 1000) -- a second, for a clock that steps
  end
  return fence
end

-- Returns the key by which a token holds a lock: the one that its holder knows; or a permit that the token was given
-- since, as the lock has a rule now. nil if it holds none.
local function held_by(key, token)
  if key == '' then return nil end
  local value = value_of(key)
  if value == token then return key end
  if value == LIMITED then
    for _, number in ipairs(call('HKEYS', permits_of(key))) do
      if value_of(permit_of(key, number)) == token then return permit_of(key, number) end
    end
  end
  return nil
end

-- Gives the key by which a token holds a lock another ttl. Returns false if another program has taken the lock.
local function renew_lock(key)
  local lock = lock_of(key)
  call('PEXPIRE', key, ttl)
  call('PEXPIRE', beside(lock, 'fence'), fence_ttl)
  if key == lock then return true end
  if value_of(lock) ~= LIMITED then return false end
  if call('PTTL', lock) < ttl then call('PEXPIRE', lock, ttl) end
  call('PEXPIRE', permits_of(lock), PERMITS_KEPT)
  return true
end
