-- Finds a task again that an earlier call of finish.lua took under the same name. This text is the
-- body of a function in finish.lua. attempt.lua and named.lua come before it. What dequeue.lua has
-- written into the task, as siding_came, tells how a task that has waited came to its lock.
--   asynq  prefix of the queue's keys
--   with   {when the lease ends, the attempt's name, the host that runs it, three values that are
--          not used here, and the prefix of locks' keys}; the last five only if dequeues take locks
-- Returns what dequeue.lua returned of the task, except for the tasks that were parked. The ticket of
-- a task that has not waited, and has no lock, is the time of this call. Returns nothing when none of
-- the hundred active tasks that were taken last has this name.

local name = with[2]
for _, id in ipairs(redis.call('LRANGE', asynq .. 'active', 0, 99)) do
  local found = redis.call('HMGET', asynq .. 't:' .. id, 'siding_attempt', 'state', 'msg', 'siding_came')
  if found[1] == name and found[2] == 'active' and found[3] then
    local left, now = redis.call('LLEN', asynq .. 'pending'), redis.call('TIME')
    local of, ticket, since, nonce = string.match(found[4] or '', '^(%S+) (%d+) (%S+) (%S*)$')
    if of ~= name then ticket, since, nonce = nil, '-1', '' end
    local resource, holder = named(found[3]), with[3] and holder_of(found[3], id, with[3])
    local token = 'siding:' .. name .. ':' .. (holder or '')
    if resource and holder and redis.call('GET', with[7] .. resource) == token then
      local fence = string.match(redis.call('GET', '{' .. with[7] .. resource .. '}:fence') or '0', '^%d+')
      return {found[3], left, {}, ticket or fence, resource, token, fence, since, nonce}
    end
    return {found[3], left, {}, ticket or now[1] .. string.format('%06d', now[2])}
  end
end
