-- Writes the entry of a server, and those of the tasks that it runs.
--
-- KEYS[1]  the server, asynq:servers:{<host>:<pid>:<id>}
-- KEYS[2]  its tasks, asynq:workers:{<host>:<pid>:<id>}
--
-- ARGV[1]     seconds for which the entries last
-- ARGV[2]     the server's entry
-- ARGV[3...]  ids of tasks, each with its entry
--
-- Returns 1.
--
-- Guarantee: nobody sees some of it. Entries of tasks that have ended are gone.

local server, tasks, ttl = KEYS[1], KEYS[2], ARGV[1]

redis.call('DEL', tasks) -- first, as it takes no memory: then Redis does not refuse the rest for want of it
redis.call('SETEX', server, ttl, ARGV[2])
for i = 3, #ARGV, 2 do
  redis.call('HSET', tasks, ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', tasks, ttl)
return 1
