-- Tries whether tasks can be taken from a queue: it makes a task on keys of its own, takes the
-- task, and deletes the keys. A function dequeue comes before this script: dequeue.lua with all its
-- parts. Both read the same KEYS and ARGV.
--
-- KEYS  those of dequeue.lua, of a queue that exists for this call only
-- ARGV  those of dequeue.lua
--
-- Returns OK, or Redis' error to what a dequeue does.
--
-- Guarantees: the script leaves nothing behind, unless Redis refuses to delete, too. Then the next
-- call deletes the keys.

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
