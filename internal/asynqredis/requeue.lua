-- Put in front of asynq's own script that puts a task back whose server shuts down, behind
-- acknowledge.lua.
--
-- ARGV[#ARGV - 2]  the ticket of the attempt, us; or '' for none
-- ARGV[#ARGV]      which of the KEYS is the task's
--
-- Guarantee: the task has the place in line that it had, before those who came after it.

if ARGV[#ARGV - 2] ~= '' then redis.call('HSET', KEYS[tonumber(ARGV[#ARGV])], 'siding_ticket', ARGV[#ARGV - 2]) end
