-- Lines: where tasks wait for a lock, and when somebody should look at them.
--
--   siding:{<queue>}:line:<lock>   the tasks of a queue that wait for the lock: id by ticket
--   siding:{<queue>}:ready         the locks that have such a line, by when somebody should look, us
--   {<lock>}:lines                 the queues that have a line for it, by the ticket of its head
--
-- Comes after locks.lua, and after slots: the hash of queues by when a server of theirs had a free slot last, us.
--
-- Defines free, wait_in_line, and marked: queues in which something has become ready.

local OFFER = 50000            -- us: for so long a freed lock is offered to the oldest line alone
local SEEN = 2000000           -- us: so long ago a queue had a free slot if it is served; an idle server says so each second

-- Queues in which something has become ready, and that may have to be told.
local marked = {}

local function mark(lock, queue, due)
  ours('ZADD', siding(queue, 'ready'), 'LT', digits(due), lock)
  marked[queue] = true
end

-- Frees a lock that an attempt of queue holds by a key. The line with the oldest head may have it as soon as its rule
-- allows; the others a moment later, if a server of that line's queue has a slot for it. Of all that are due the one is
-- first that was taken longest ago, as its fence tells: so resources take turns, also if many attempts begin and end at
-- the same time.
local function free(key, queue)
  local lock = lock_of(key)
  call('DEL', key)
  if key ~= lock then
    call('HDEL', permits_of(lock), number_of(key))
    if call('EXISTS', permits_of(lock)) == 0 and value_of(lock) == LIMITED then call('DEL', lock) end
  end
  local lines = ours('ZRANGE', lines_of(lock), 0, -1, 'WITHSCORES')
  if #lines == 0 then return end
  local taken = try('GET', beside(lock, 'fence'))
  local due = math.min(now, type(taken) == 'string' and tonumber(string.match(taken, '^%d+')) or now)
  if rule_of(lock) then
    local _, _, later = room(lock)
    due = later or due
  end
  local oldest, others = lines[1], due
  if #lines > 2 then
    local seen = oldest == queue and now or tonumber(call('HGET', slots, oldest) or '0')
    if now - seen < SEEN then others = math.max(due, now) + OFFER end
  end
  mark(lock, oldest, due)
  for i = 3, #lines, 2 do mark(lock, lines[i], others) end
end

-- Puts a task into the line of a lock, at its ticket. The sets of its old state are left to the caller.
--   due  when the line should be looked at, at the latest
local function wait_in_line(queue, id, lock, ticket, ends, due)
  call('ZADD', asynq(queue, 'retry'), ends, id)
  ours('ZADD', siding(queue, 'line:' .. lock), ticket, id)
  ours('ZADD', lines_of(lock), 'LT', ticket, queue)
  ours('ZADD', siding(queue, 'ready'), 'LT', digits(due), lock)
end
