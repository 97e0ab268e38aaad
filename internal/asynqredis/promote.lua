-- Calls a parked task back. bell.lua, waits.lua and call.lua come before it.
--
-- KEYS[1]  asynq:{queue}:t:<id>
-- KEYS[2]  asynq:{queue}:retry
-- KEYS[3]  asynq:{queue}:pending
-- KEYS[4]  asynq:{queue}:paused
-- KEYS[5]  siding:{queue}:bell
-- ARGV[1]  task id
-- ARGV[2]  the ticket under which it waits
-- ARGV[3]  now, Unix nanoseconds
--
-- Returns, and guarantees, what promote in call.lua does.

return promote(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2], ARGV[3])
