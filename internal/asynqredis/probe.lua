-- Tries whether tasks can be taken from a queue: takes one of its own, from keys of its own,
-- which it makes and deletes. It comes behind a function dequeue, which is dequeue.lua with all
-- that comes before that, and reads the same KEYS and ARGV.
--
-- KEYS  those of dequeue.lua, of a queue that exists for this call only
-- ARGV  those of dequeue.lua
--
-- Returns OK, or the error with which Redis refuses what a dequeue does.
--
-- Guarantees: nothing is left of it, unless Redis refuses to delete as well. The next call then
-- finds and deletes it.

local id = 'probe'
local task = ARGV[2] .. id
local function try()
  -- The first write must be one that a full Redis refuses: after it all others pass.
  redis.call('LPUSH', KEYS[1], id)
  redis.call('HSET', task, 'msg', '', 'state', 'pending')
  dequeue()
end
local ok, problem = pcall(try)
redis.pcall('DEL', task, unpack(KEYS))
if ok then return redis.status_reply('OK') end
if type(problem) == 'table' then return problem end
return redis.error_reply(tostring(problem))
