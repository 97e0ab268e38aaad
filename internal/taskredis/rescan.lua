-- Has some of the locks that tasks of a queue wait for looked at now, as the limits have changed.
--
-- KEYS[1]  ready   the queue's ready set
-- ARGV[1]  queue
-- ARGV[2]  cursor  0 for its start
--
-- Returns the cursor from which to go on, '0' at the end.
--
-- Guarantee: whoever goes through the whole set meets each lock that was in it all the time. A look that comes too early
-- does no harm.

-- include beside
-- include common
-- include notify

local some = call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', 500)
for i = 1, #some[2], 2 do
  if tonumber(some[2][i + 1]) > now then call('ZADD', KEYS[1], 'LT', digits(now), some[2][i]) end
end
if #some[2] > 0 then notify(siding(ARGV[1], 'notify'), 1) end
return some[1]
