-- Permits: how locks are held that have a rule.
--
--   {<lock>}:permit:<n>   a permit: the token of its holder, or a reservation
--   {<lock>}:permits      hash of the permits in use: n by fence, 0 for a reservation
--   {<lock>}:starts       list of the fences with which permits were taken, the latest first: they say when, us; only with rates
--
-- Comes after common.lua.

local PAUSED = 60000000        -- us: so often one is looked at of which nobody may hold a permit
local PERMITS_KEPT = 172800000 -- ms: as no lease lasts

local function permit_of(lock, n) return beside(lock, 'permit:' .. n) end
local function permits_of(lock) return beside(lock, 'permits') end
local function number_of(permit) return string.match(permit, '%d+$') end

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

-- Returns the rule of a resource, by its own limits and those of an operator; see rule_of.
local function rule(resource, limits, overrides)
  local own, override = find(limits, resource), find(overrides, resource)
  if has_prefix(resource, 'siding-') or not (own or override) then return false end
  local found = parse_rule(override or own, override and string.find(override, '/', 1, true) and override or own or '')
  if found.limit == 1 and #found.rates == 0 then return false end
  return found
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

-- Reads the permits of a lock that are in use.
local function read_permits(lock)
  local permits, keys, expired = {used = 0, reservations = 0, holders = {}, free = 1}, {}, {}
  local numbers = call('HKEYS', permits_of(lock))
  if #numbers == 0 then return permits end
  for i, number in ipairs(numbers) do keys[i] = permit_of(lock, number) end
  for i, holder in ipairs(call('MGET', unpack(keys))) do -- at most 1,000, as a limit
    if holder then
      permits.holders[keys[i]], permits.used = holder, permits.used + 1
      if reserved(holder) then permits.reservations = permits.reservations + 1 end
    else
      expired[#expired + 1] = numbers[i]
    end
  end
  if #expired > 0 then call('HDEL', permits_of(lock), unpack(expired)) end
  return permits
end

-- What open_key returns of a lock with a rule whose permits have been read.
local function open_permit(lock, rule, permits)
  local from = permits.used < rule.limit and next_start(lock, rule.rates, permits.reservations)
  if from == 0 then
    if rule.limit == 1 and #rule.rates == 0 then return lock, nil, nil, permits end -- as those have it who know no rule
    while permits.holders[permit_of(lock, permits.free)] do permits.free = permits.free + 1 end
    return permit_of(lock, permits.free), nil, nil, permits
  end
  local first
  for key, holder in pairs(permits.holders) do
    local left = look_in(key, holder)
    if not first or left < first then first, permits.key, permits.value = left, key, holder end
  end
  if from then
    permits.from = from
    return nil, LIMITED, from, permits
  end
  return nil, permits.value or LIMITED, now + (first or PAUSED), permits
end

-- The same of a lock that nobody has as a whole.
local function open_key(lock, rule) return open_permit(lock, rule, read_permits(lock)) end

-- Writes down that a permit is in use for so many ms.
local function keep(key, lock, fence, lasts)
  call('HSET', permits_of(lock), number_of(key), fence)
  call('PEXPIRE', permits_of(lock), PERMITS_KEPT)
  local value = value_of(lock)
  if (not value or value == LIMITED) and call('PTTL', lock) < tonumber(lasts) then call('SET', lock, LIMITED, 'PX', lasts) end
end

-- Reserves a permit that was found free with this value, for so many ms. Returns what open_key returns after that.
local function reserve(key, lock, rule, permits, value, lasts)
  call('SET', key, value, 'PX', lasts)
  keep(key, lock, '0', lasts)
  permits.holders[key], permits.used, permits.reservations = value, permits.used + 1, permits.reservations + 1
  return open_permit(lock, rule, permits)
end

-- Writes down that a permit was taken.
local function taken(key, lock, rule, fence, lasts)
  keep(key, lock, fence, lasts)
  local most, longest = 0, 0
  for _, rate in ipairs(rule.rates) do most, longest = math.max(most, rate[1]), math.max(longest, rate[2]) end
  if most == 0 then return end
  local starts = beside(lock, 'starts')
  call('LPUSH', starts, fence)
  call('LTRIM', starts, 0, most - 1)
  call('PEXPIRE', starts, math.ceil(longest / 1000) + 1000) -- a second, for a clock that steps
end

-- Takes back that a permit was taken, for the rates: its holder has begun nothing.
local function not_started(key, lock)
  call('LREM', beside(lock, 'starts'), 1, call('HGET', permits_of(lock), number_of(key)) or '')
end

-- Returns the first permit of a lock whose value fits, and that value.
local function find_permit(lock, fits)
  for _, number in ipairs(call('HKEYS', permits_of(lock))) do
    local permit = permit_of(lock, number)
    local value = value_of(permit)
    if fits(value) then return permit, value end
  end
end

-- Deletes a permit from those that are in use.
local function delete_key(key, lock)
  call('HDEL', permits_of(lock), number_of(key))
  if call('EXISTS', permits_of(lock)) == 0 and value_of(lock) == LIMITED then call('DEL', lock) end
end

-- Gives a permit that its holder has renewed, for so many ms, to its lock. Returns false if another program has taken that.
local function renewed(lock, lasts)
  if value_of(lock) ~= LIMITED then return false end
  if call('PTTL', lock) < tonumber(lasts) then call('PEXPIRE', lock, lasts) end
  call('PEXPIRE', permits_of(lock), PERMITS_KEPT)
  return true
end

return permit_of, permits_of, number_of, parse_rule, rule, next_start, open_key, reserve, taken, not_started, find_permit, delete_key, renewed
