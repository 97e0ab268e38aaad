-- Sets a limit for an operator, in place of an earlier one of its pattern.
--
-- KEYS[1]  siding:limits:<prefix of the locks>
-- ARGV[1]  pattern
-- ARGV[2]  limit as JSON
-- ARGV[3]  how many limits there may be
--
-- Returns 1, or 0 when there are too many, which changes nothing.
--
-- Guarantee: the same call made twice (its reply was lost) has the effect of one.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
