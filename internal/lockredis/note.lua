-- Notes for which other locks the work of a holder waits. It is for operators; see look.lua.
--
-- KEYS[1]  lock
-- KEYS[2]  waits    the note
-- ARGV[1]  token
-- ARGV[2]  the note, or '' to delete it
-- ARGV[3]  retention of the note, ms
--
-- Returns 1 when the lock was the token's, else 0.
--
-- Guarantee: only the holder of the lock changes the note on it. The same call made twice has the
-- effect of one.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
