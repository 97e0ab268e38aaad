-- Finds a task again that was taken under a name, within finish.lua. attempt.lua and named.lua come
-- before it.
--   asynq  what the queue's keys begin with
--   with   {when the lease ends, the attempt's name, where it runs, three that are not needed here, and
--          the prefix of locks' keys}
-- Returns what dequeue.lua returned of it, but for how many tasks were left and put aside; nothing
-- when it is not among the hundred that were taken last, or not under this name.

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
      return {found[3], left, {}, ticket, resource, token, fence, '-1'}
    end
    return {found[3], left, {}, ticket}
  end
end
