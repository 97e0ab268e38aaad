-- Reads a task.
--
-- KEYS[1]  task
-- ARGV[1]  queue
-- ARGV[2]  id
-- ARGV[3]  depth  how many pending tasks are searched for the task
--
-- Returns a list:
--   now      us
--   state    '' if there is no such task
--   message
--   rank     among the pending tasks, 1 for the one that a server takes next; 0 for one that was not found
--   lease    when that of an active task ends, Unix seconds with a fraction, or '0'
--   time     in the set of its state, Unix seconds, or '0'
--   paused   1 if the queue is
-- and then the fields of its hash that are named below, '' for each that it does not have, and of one that waits for a lock:
--   before   how many resources of the queue are looked at before its own
--   new      how many tasks are pending, which take turns with these
--
-- Guarantee: it changes nothing.

-- include beside
-- include common

local queue, id = ARGV[1], ARGV[2]
local found = call('HMGET', KEYS[1], 'state', 'msg', 'siding_ticket', 'siding_lock', 'siding_until', 'siding_parked', 'siding_crashes',
  'siding_losses', 'siding_text', 'pending_since', 'siding_held', 'siding_attempt', 'siding_resource', 'siding_began')
for i = 1, 14 do found[i] = found[i] or '' end
found[15], found[16] = 0, 0
local state, rank, lease, time = found[1], 0, '0', '0'
if state == 'pending' then
  -- The right end is the head. The index counts from the left.
  local index = call('LPOS', asynq(queue, 'pending'), id, 'RANK', -1, 'MAXLEN', ARGV[3])
  if index then rank = call('LLEN', asynq(queue, 'pending')) - index end
elseif state == 'active' then
  lease = call('ZSCORE', asynq(queue, 'lease'), id) or '0'
elseif state == 'retry' or state == 'scheduled' or state == 'archived' or state == 'completed' then
  time = call('ZSCORE', asynq(queue, state), id) or '0'
  local due = state == 'retry' and call('ZSCORE', siding(queue, 'ready'), string.match(found[4], '^[^\n]*'))
  if due then
    found[15] = call('ZCOUNT', siding(queue, 'ready'), '-inf', '(' .. due)
    found[16] = call('LLEN', asynq(queue, 'pending'))
  end
end
return {digits(now), state, found[2], rank, lease, time, call('EXISTS', asynq(queue, 'paused')), unpack(found, 3, 16)}
