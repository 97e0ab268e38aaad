-- Moves a checkpoint forward, never back: two runs over one file may alternate.
--
-- KEYS[1]  the checkpoint
-- ARGV[1]  the number of the last line that is done
-- ARGV[2]  how long Redis keeps the checkpoint from now on, in seconds
--
-- Returns nothing. A run that finds the number N may leave out all lines up to N.

local at = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
if tonumber(ARGV[1]) > at then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
else
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
