-- Hands over to an attempt how often in a row its task has been refused a lock, within
-- dequeue.lua in the place of ahead.lua, for locks that are not where the tasks are.

-- Returns {'0', the number}; nothing where it is none. The attempt's stamp takes it out of the
-- task's hash: it stays there only while the task waits.
local function ahead(task)
  local refusals = redis.call('HGET', task, 'siding_refusals')
  if refusals then return {'0', refusals} end
end

