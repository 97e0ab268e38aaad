-- Put before asynq's own script that requeues a task whose server shuts down, and behind
-- acknowledge.lua.
--
-- ARGV[#ARGV - 2]  the ticket of the attempt, us; or '' for none
-- ARGV[#ARGV]      the number of the task's key in KEYS
--
-- Guarantee: the task keeps its position in the wait queue, before those who came after it.

if ARGV[#ARGV - 2] ~= '' then redis.call('HSET', KEYS[tonumber(ARGV[#ARGV])], 'siding_ticket', ARGV[#ARGV - 2]) end
