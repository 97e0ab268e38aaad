-- Says from when on the rates of a lock allow another start. take.lua and permits.lua come before it.
--
-- KEYS[1]  lock
-- ARGV[1]  rule, see permits.lua; its limit does not count
--
-- Returns {us, or '0' for now; 1 if some rates hold for the lock, maybe others than these}.
--
-- Guarantee: the script changes nothing.

local rates = rule_of(ARGV[1]).rates
local _, _, reservations = permits_of(KEYS[1])
return {digits(next_start(KEYS[1], rates, reservations, us())), redis.call('EXISTS', '{' .. KEYS[1] .. '}:starts')}
