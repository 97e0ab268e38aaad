-- Where that is kept which belongs to a lock.

-- Returns what the keys begin with of all that belongs to a lock, in the slot of the lock. It depends on the key of the lock
-- alone, so that all who use that key agree. Where keys do not begin with "lock:" there may be other data, with names like these,
-- and ours have "siding:" in them. Braces in the name of a resource are in pairs, the first of them not empty.
local function base_of(lock)
  if string.find(lock, '}', 1, true) then return lock .. ':siding:' end
  return '{' .. lock .. (string.sub(lock, 1, 5) == 'lock:' and '}:' or '}siding:')
end

return base_of
