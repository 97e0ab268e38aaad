-- Takes a waiter out of the wait queue. If the lock is reserved for it, the lock goes to whoever came first of the others.
--
-- given has:
--   waiter
--   rule       '' for one holder at a time; see parse_rule
--   by         who leaves: unique per call
--   handoff    for how long the lock is reserved for another waiter, ms
--   fence_ttl  how long the mark of a reservation is remembered, ms
--
-- Returns 1.
--
-- Guarantee: the same call made twice has the effect of one.
--
-- Comes after lines.lua.
local function leave(lock)
  local waiter = given.waiter
  rules[lock] = given.rule ~= '' and Permits().parse_rule(given.rule)
  local first = Queue().first_waiter(lock) == waiter
  ours('ZREM', wait_queue_of(lock), waiter)
  local key = reserved_for(lock, waiter)
  if key then
    free(key, given.by)
  elseif first then
    -- It may have been told to ask again, see tell_first. Now the next one hears when the rates allow a start.
    local open, _, _, permits = open_key(lock)
    local unknown = not rule_of(lock) and value_of(lock) == LIMITED -- who leaves may know of no rule
    if open or unknown or permits and permits.from then Queue().tell_first(lock) end
  end
  return 1
end

return leave
