-- Reads the limits that operators have set.
--
-- KEYS[1]  siding:limits:<prefix of the locks>
--
-- Returns {pattern, limit as JSON, ...}.
--
-- Guarantee: the script changes nothing.

return redis.call('HGETALL', KEYS[1])
