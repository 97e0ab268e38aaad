-- Finds a task again that an earlier call of finish.lua took under the same name. This text is the
-- body of a function in finish.lua. attempt.lua and named.lua come before it.
--   asynq  prefix of the queue's keys
--   with   {when the lease ends, the attempt's name, the host that runs it, three values that are
--          not used here, and the prefix of locks' keys}; the last five only if dequeues take locks
-- Returns what dequeue.lua returns of a task, with three differences: it names no tasks that were
-- parked, the ticket is the time of this call, and there is no time since a reservation. Returns
-- nothing when none of the hundred active tasks that were taken last has this name.

local name = with[2]
for _, id in ipairs(redis.call('LRANGE', asynq .. 'active', 0, 99)) do
  local found = redis.call('HMGET', asynq .. 't:' .. id, 'siding_attempt', 'state', 'msg')
  if found[1] == name and found[2] == 'active' and found[3] then
    local left, now = redis.call('LLEN', asynq .. 'pending'), redis.call('TIME')
    local ticket = now[1] .. string.format('%06d', now[2])
    local resource, holder = named(found[3]), with[3] and holder_of(found[3], id, with[3])
    local token = 'siding:' .. name .. ':' .. (holder or '')
    if resource and holder and redis.call('GET', with[7] .. resource) == token then
      local fence = string.match(redis.call('GET', '{' .. with[7] .. resource .. '}:fence') or '0', '^%d+')
      return {found[3], left, {}, ticket, resource, token, fence, '-1', ''}
    end
    return {found[3], left, {}, ticket}
  end
end
