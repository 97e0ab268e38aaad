-- Locks: who holds one, whether it may be taken, taking it and renewing it. A lock with a rule is held by permits,
-- which are keys like that of a lock without; see permits.lua.
--
--   <lock>                the token of its holder, or a reservation; LIMITED while a permit is in use
--   {<lock>}:fence        the last fencing token; with a '*' behind it, if the lock has been reserved since
--
-- A token is 'siding:<unique>:<holder>', and 'siding:revoked-<unique>:<holder>' once an operator has revoked it; or for a moment after
-- the lock of a task has run out, until its server says what becomes of the task. A reservation is 'siding-reserved:<call that made it>:<when, us>:<waiter>'.
--
-- Comes after permits.lua. Some functions need what the script has to define before:
--
--   take_lock, renew_lock  given, with ttl and fence_ttl, ms, as texts: Redis formats numbers slowly, as fractions
--   rule_of, open_key      prefix of the locks' keys; limits and overrides, which have for each pattern of resources a line
--                          break, the pattern, a tab, and a rule; see parse_rule. Of a lock whose rule is in rules: none
--
-- Where a function takes what a key holds it reads that itself if it is nil. A key that is not there holds false. Those that
-- are for the locks of a task, held_by, take_locks, renew_lock and left_of, take the keys of several as well; see each.

-- Makes the next fence of a lock: the time in us, or one more than the last. Those of a script differ. Returns the last
-- one, too, or 0.
local fences = 0
local function fenced(lock)
  local key = beside(lock, 'fence')
  fences = fences + 1
  local fence = digits(now + fences)
  local before, last = try('SET', key, fence, 'PX', given.fence_ttl, 'GET'), 0
  if type(before) == 'table' and before.err then
    troubles[#troubles + 1] = key .. ': ' .. before.err
    call('SET', key, fence, 'PX', given.fence_ttl)
  elseif before then
    last = tonumber(string.match(before, '^%d+') or '0')
    if last >= tonumber(fence) then
      fence = digits(last + 1)
      call('SET', key, fence, 'PX', given.fence_ttl)
    end
  end
  return fence, last
end

local ALONE = {limit = 1, rates = {}}
local rules = {} -- by lock; false for none
local marked = {} -- queues in which something has become ready, and that may have to be told

-- Returns the rule of a lock; false for one holder at a time. That of an operator counts more, but keeps the rates if it
-- has none.
local function rule_of(lock)
  if rules[lock] == nil then
    if limits == '' and overrides == '' then return false end
    rules[lock] = Permits().rule(string.sub(lock, #prefix + 1), limits, overrides)
  end
  return rules[lock]
end

-- Returns the key by which a lock may be held now: its own, or a free permit. Else nil, what keeps it, and when
-- somebody should look again, at the latest. Of a lock with permits the fourth is {used: how many are; reservations: how
-- many of these; key: that of the permit which expires first; value: of that; from: when the rates allow a start, if they
-- keep it}. value is what the lock holds.
local function open_key(lock, value)
  local rule = rule_of(lock)
  if value == nil then value = value_of(lock) end
  if not rule and not value then return lock end
  -- Somebody has the whole lock, perhaps from before the rule.
  if value and value ~= LIMITED then return nil, value, now + look_in(lock, value) end
  -- Who knows no rule has the whole lock, once no permit is in use: the mark may outlast them all.
  return Permits().open_key(lock, rule or ALONE)
end

-- Takes a lock by a key that open_key has returned. Returns the fence, and the last one before it.
local function take_lock(key, token)
  local lock = lock_of(key)
  call('SET', key, token, 'PX', given.ttl)
  local fence, before = fenced(lock)
  if key ~= lock then Permits().taken(key, lock, rule_of(lock), fence, given.ttl) end
  return fence, before
end

-- Takes locks by their keys. Returns the fences, with commas between them, and the latest of those before.
local function take_locks(keys, token)
  local all, latest = {}, 0
  for key in each(keys) do
    local fence, before = take_lock(key, token)
    all[#all + 1], latest = fence, math.max(latest, before)
  end
  return table.concat(all, ','), latest
end

-- Deletes the key by which a lock is held or reserved.
local function delete_key(key)
  local lock = lock_of(key)
  call('DEL', key)
  if key ~= lock then Permits().delete_key(key, lock) end
end

-- Returns the first key of a lock whose value fits, and that value: the key that the caller knows, whose value this is; or
-- a permit.
local function find_key(key, value, fits)
  if fits(value) then return key, value end
  if value == LIMITED then return Permits().find_permit(key, fits) end
end

-- What a lock holds instead of a token that is revoked: its holder has lost it, and nobody else may have it yet.
local function revoked_token(token) return 'siding:revoked-' .. string.sub(token, 8) end

-- Returns the key by which a token holds a lock: the one that its holder knows, whose value this is; or a permit, if the holder
-- does not know which it was given. Nothing if it holds none. The second is true if an operator has revoked it: then the token
-- holds the lock until its holder returns, but may not renew it. Of several keys it returns those that are held; and true also if
-- these are not all.
local function held_by(key, token, value)
  if key == '' then return nil end
  if value == nil then value = value_of(key) end
  if value == token then return key, false end -- as mostly: several are no key
  if several(key) then
    local held, some_lost = {}, false
    for one in each(key) do
      local found, revoked = held_by(one, token)
      held[#held + 1], some_lost = found, some_lost or revoked or not found
    end
    if not held[1] then return nil end
    return table.concat(held, '\n'), some_lost
  end
  if not value then return nil end
  local revoked = revoked_token(token)
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

-- Gives the key by which a token holds a lock another ttl. Returns false if another program has taken the lock, or one of several.
local function renew_lock(key)
  if several(key) then
    local kept = true
    for one in each(key) do kept = renew_lock(one) and kept end
    return kept
  end
  local lock = lock_of(key)
  call('PEXPIRE', key, given.ttl)
  call('PEXPIRE', beside(lock, 'fence'), given.fence_ttl)
  return key == lock or Permits().renewed(lock, given.ttl)
end

-- For how long a lock is held by a key, ms; of several, the first to run out.
local function left_of(key)
  local left = math.huge
  for one in each(key) do left = math.min(left, call('PTTL', one)) end
  return left
end

return fenced, rules, marked, rule_of, open_key, take_lock, take_locks, delete_key, revoked_token, held_by, reserved_for, renew_lock, left_of
