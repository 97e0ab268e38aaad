-- Takes the lock of a task that is being dequeued, or has the task wait for it, within
-- dequeue.lua, whose ARGV it reads. attempt.lua, named.lua and refuse.lua come before it; take_ahead is
-- defined by package lock.

-- Returns {resource, token, fence, time since the reservation in us or '-1'} when the lock has
-- been taken; nil and what refuse returns when the task has been put aside; nothing when the
-- lock has to be asked for.
local function ahead(task, id, msg, ticket)
  local resource, holder = named(msg), holder_of(msg, id, ARGV[5])
  if not resource or not holder then return end
  local with = {ARGV[9], ARGV[10], ARGV[11], ARGV[12]}
  local waiter = ARGV[4] .. id
  local grant, value = take_ahead(with, resource, ARGV[3], holder, waiter)
  if grant then return {resource, unpack(grant)} end
  return nil, value and refuse(task, id, msg, resource, waiter, value, with, ticket)
end

