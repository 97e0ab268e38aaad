-- Finds out whether tasks of a queue could be taken, by commands of a step on a key of its own. A full Redis refuses this, though it
-- lets a step pass, which begins with a write that takes no memory.
--
-- KEYS[1]  pending  the list of the queue's pending tasks
-- KEYS[2]  probe    a key that nobody else uses
--
-- Returns 1, or the error with which Redis refuses.
--
-- Guarantee: no task is taken.

local call, probe = redis.call, KEYS[2]
call('EXISTS', KEYS[1])
call('RPOPLPUSH', probe, probe) -- the first write, as a full Redis refuses this command, and lets all later writes of a script pass
call('LREM', probe, 1, '')
call('ZRANGE', probe, 0, 0)
call('ZREM', probe, '')
call('HSET', probe, 'a', '1')
call('HMGET', probe, 'a')
call('DEL', probe)
call('ZADD', probe, 1, 'a')
call('DEL', probe)
call('SET', probe, '1', 'PX', 1000)
call('DEL', probe)
return 1
