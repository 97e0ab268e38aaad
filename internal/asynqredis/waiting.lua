-- Lists tasks that are in wait queues. waits.lua and parking.lua come before it.
--
-- KEYS[1]  asynq:{queue}:retry
-- KEYS[2]  siding:{queue}:contended
-- ARGV[1]  prefix of the keys of the queue's tasks
-- ARGV[2]  a cursor of ZSCAN, and ARGV[3] how many to read; or '' and ids of tasks that may
--          have lost their positions
--
-- Returns {next cursor, {id, lock, ticket, ...}}.
--
-- Guarantees: the script changes no task. The sweeper scans the locks of the tasks that are listed.

local page = {'0', {}}
if ARGV[2] == '' then
  for i = 3, #ARGV do page[2][#page[2] + 1], page[2][#page[2] + 2] = ARGV[i], '' end
else
  page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
end
local waiting = {}
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local task = redis.call('HMGET', ARGV[1] .. id, 'state', 'siding_lock', 'siding_ticket', 'msg')
  if task[1] == 'retry' and task[2] and task[2] ~= '' and waits(task[4]) then
    local n = #waiting
    waiting[n + 1], waiting[n + 2], waiting[n + 3] = id, task[2], task[3]
    if ARGV[2] == '' or not redis.call('ZSCORE', KEYS[2], task[2]) then
      local now = redis.call('TIME')
      contend(KEYS[2], task[2], now[1] * 1000000 + now[2])
    end
  end
end
return {page[1], waiting}
