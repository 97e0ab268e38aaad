-- A step of a server: ends attempts and frees their locks, puts crashed tasks back into their places, and
-- takes tasks for the slots that are free.
--
-- KEYS[1]  record   what this server's last step came to, for a call that is made twice
-- KEYS[2]  slots    hash of queues by when a server of theirs had a free slot last, us
-- The other keys are those of the queues and locks that the arguments name; see doc.go.
--
-- ARGV     read in this order by the function arg, below
--   number, after, sent           of the step, from 1 on; of the server's last step, as far as it knows, 0 for none; when
--                                 it was sent by Redis' clock, us
--   attempt, holder               the first and last part of the names of the attempts that it begins
--   prefix, ttl, fence_ttl        of locks: what their keys begin with; ms; ms
--   crashes                       how many crashes of a task use no retry
--   limits, overrides             how many may hold a lock at once, and how often one may start: for each pattern of
--                                 resources a line break, the pattern, a tab, and a rule; see rule_of
--   today, stats_until            asynq's day for its statistics, and when they expire, Unix seconds
--   outcomes                      how many follow; each is queue, id, attempt, lock, kind, and then
--     done                          unique
--     complete                      unique, message, for how long it is kept in us
--     retry                         message, in how many us it comes again, whether it counts as a failure
--     again                         message, in how many us it comes again, losses
--     archive                       message
--     requeue
--     ask                           want, ticket, deadline
--   queues                        how many follow; each is name, whose turn it is: ready or pending
--   slots                         how many follow; each is the queues to try, a byte each, 1 for the first
--
-- Returns {now in us, number of the step that was recorded last, results, queues, tasks, parked, recovered, troubles}; if
-- that number is neither this step's nor after, Redis has forgotten steps, the step has done nothing, and the rest is empty:
--   results   of the outcomes: 'settled', 'granted <fence> <key of the lock>', 'parked', 'stale', 'lost', or 'error <text>'
--   queues    for each: 'ready' or 'pending', whose turn is next; 1 if it is paused; 1 if it has more to
--             take; and in how many us its first lock should be looked at, -1 for never
--   tasks     nine values each: number of the queue, id, attempt, lock, fence, ticket, times parked, losses,
--             message; the fence is 0 without a lock, and -1 if there is none as the deadline of the task is over
--   parked    six values each: number of the queue, id, lock, what that holds or '', ticket, times parked
--   recovered three values each: number of the queue, id and lock of a task whose server has died
--   troubles  sentences for the log
--
-- Guarantees: an outcome whose attempt is not its task's latest changes nothing. A lock is given to one
-- attempt at most, in order of the tickets in a line. A task is in the sets of its new state before it
-- leaves those of the old one. A crashed task is back in its line before a lock is given to a
-- pending or a waiting task of its queue, though not before one that asks. A step
-- that is run again answers what it answered; one that is older than the last changes nothing; one that
-- comes late takes nothing.

local at = 0
local function arg() at = at + 1 return ARGV[at] end

local number, after, sent = tonumber(arg()), tonumber(arg()), tonumber(arg())
local attempt_head, holder = arg(), arg()
local prefix, ttl, fence_ttl = arg(), tonumber(arg()), arg()
local free_crashes = tonumber(arg())
local limits, overrides = arg(), arg()
local today, stats_until = arg(), arg()

local LATE = 2000000           -- us: a step that took longer to come takes nothing, as nobody may wait for it; nor does one from the future
local UNTIL = 3 * 3600         -- s: for so long a waiting task stays in the retry set, at most
local MOST_LOOKS, MOST_PARKED, MOST_BYTES, MOST_HEADS, MOST_CRASHED = 100, 200, 1000000, 100, 20
local SENTENCE = 16384         -- bytes: a longer message gets no sentence for people, as that would cost too much

local slots = KEYS[2]

-- include common
-- include locks
-- include lines

local results, granted, tasks, parked, recovered = {}, {}, {}, {}, {}

-- Returns an encoded message without what was appended to it, if it still ends with that.
local function without(message, text)
  if text and text ~= '' and string.sub(message, -#text) == text then return string.sub(message, 1, -#text - 1) end
  return message
end

-- What was recorded of the last step: its number, and then each text with its length before it.
local record = call('GET', KEYS[1])
local known = record and tonumber(string.match(record, '^%d+')) or 0
if known > number then return redis.error_reply('SIDING step ' .. digits(number) .. ' comes after step ' .. digits(known)) end
if known == number then
  local from = string.find(record, '\n', 1, true) + 1
  local function text()
    local _, colon, size = string.find(record, '^(%d+):', from)
    from = colon + 1 + size
    return string.sub(record, colon + 1, colon + size)
  end
  -- Whether an attempt still is its task's latest and holds its lock. The caller trusts the lock from when it sent
  -- this call, so it has to last from now on.
  local function confirmed(queue, id, attempt, lock)
    local have = call('HMGET', asynq(queue, 't:' .. id), 'siding_attempt', 'state')
    if have[1] ~= attempt or have[2] ~= 'active' or lock ~= '' and value_of(lock) ~= attempt then return false end
    if lock ~= '' and not renew_lock(lock) then return false end
    call('ZADD', asynq(queue, 'lease'), in_seconds(lock ~= '' and ttl or 30000), id)
    return true
  end
  for i = 1, tonumber(text()) do results[i] = text() end
  for _ = 1, tonumber(text()) do
    local i, queue, id, attempt, lock = tonumber(text()), text(), text(), text(), text()
    if not confirmed(queue, id, attempt, lock) then results[i] = 'lost' end
  end
  for _ = 1, tonumber(text()) do
    local queue, task = text(), {}
    for k = 1, 8 do task[k] = text() end
    local id, attempt, lock = task[2], task[3], task[4]
    if confirmed(queue, id, attempt, lock) then
      tasks[#tasks + 1] = tonumber(task[1])
      for k = 2, 8 do tasks[#tasks + 1] = task[k] end
      local have = call('HMGET', asynq(queue, 't:' .. id), 'msg', 'siding_text')
      tasks[#tasks + 1] = without(have[1] or '', have[2])
    end
  end
  return {now, known, results, {}, tasks, parked, recovered, troubles}
end

-- After a failover the server has to know first what was forgotten. And this may be a late copy of a step that was answered
-- before: nobody would hear of what it takes.
if known ~= after then return {now, known, results, {}, tasks, parked, recovered, troubles} end

-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
call('DEL', KEYS[1] .. ':none')

-- Returns what the dashboard shows of a task that waits for a lock, as a field of asynq's encoded message: the
-- last of a repeated field counts, so it is appended. It is for people; no code reads it. '' if it would not
-- be UTF-8, which asynq refuses.
local function sentence(lock, value)
  local holder = type(value) == 'string' and string.match(value, '^siding:[^:]*:([%w%p ]*)$')
  local text = 'waits for ' .. string.sub(lock, #prefix + 1) .. (holder and ', held by ' .. holder or value and ', held by another program' or ', in its turn')
  if string.find(text, '[\128-\255]') then
    local rest = string.gsub(text, '[\194-\223][\128-\191]', '')
    rest = string.gsub(rest, '[\225-\236\238\239][\128-\191][\128-\191]', '')
    rest = string.gsub(rest, '[\241-\243][\128-\191][\128-\191][\128-\191]', '')
    if string.find(rest, '[\128-\255]') then return '' end
  end
  local size = #text < 128 and string.char(#text) or string.char(128 + #text % 128, math.floor(#text / 128))
  return '\58' .. size .. text
end

-- Until when a task waits, by its deadline in seconds: false, '' or 0 for none.
local function until_of(deadline)
  local most, ends = now_s + UNTIL, tonumber(deadline or '') or 0
  return ends > 0 and math.min(most, math.max(ends, now_s)) or most
end

---------------------------------------------------------------------------------------------------------
-- Settle: what has ended.

local ended = {}   -- by queue: ids that leave active and lease
local deleted = {} -- keys of tasks
local counts = {}  -- by queue: {processed, failed}

local function leaves(queue, id)
  ended[queue] = ended[queue] or {}
  table.insert(ended[queue], id)
end

local function count(queue, failed)
  local c = counts[queue] or {0, 0}
  c[1], c[2] = c[1] + 1, c[2] + failed
  counts[queue] = c
end

-- asynq keeps the newest 10,000 archived tasks, for 90 days.
local function archive(queue, id)
  local key = asynq(queue, 'archived')
  call('ZADD', key, now_s, id)
  local old = call('ZRANGEBYSCORE', key, '-inf', now_s - 90 * 86400, 'LIMIT', 0, 100)
  if #old == 0 and call('ZCARD', key) >= 10000 then old = call('ZRANGE', key, 0, math.min(99, call('ZCARD', key) - 10000)) end
  for _, gone in ipairs(old) do
    if gone ~= id then
      call('DEL', asynq(queue, 't:' .. gone))
      call('ZREM', key, gone)
    end
  end
end

local function settle(queue, id, attempt, lock, kind, given)
  local task = asynq(queue, 't:' .. id)
  local have = call('HMGET', task, 'siding_attempt', 'state', 'siding_ticket', 'siding_deadline', 'siding_lock')
  -- An attempt that says '' has had no lock; or it does not trust its lock any more, and may hold it all the same.
  local holds = held_by(lock ~= '' and lock or have[5] or '', attempt)
  if have[1] ~= attempt or have[2] ~= 'active' then
    if holds then free(holds, queue) end
    if not have[2] then leaves(queue, id) end -- the task was deleted: it is nowhere
    return 'stale'
  end
  if lock ~= '' and not holds then return 'lost' end

  if kind == 'done' or kind == 'complete' then
    if kind == 'complete' then
      call('ZADD', asynq(queue, 'completed'), given.at, id)
      call('HSET', task, 'state', 'completed', 'msg', given.message)
      call('HDEL', task, 'siding_ticket')
    else
      deleted[#deleted + 1] = task
    end
    if given.unique ~= '' and call('GET', given.unique) == id then deleted[#deleted + 1] = given.unique end
    count(queue, 0)
  elseif kind == 'retry' then
    call('ZADD', asynq(queue, 'retry'), given.at, id)
    call('HSET', task, 'state', 'retry', 'msg', given.message)
    call('HDEL', task, 'siding_ticket', 'siding_until', 'siding_text')
    if given.counts == '1' then count(queue, 1) end
  elseif kind == 'again' then
    call('ZADD', asynq(queue, 'retry'), given.at, id)
    call('HSET', task, 'state', 'retry', 'msg', given.message, 'siding_losses', given.losses)
    call('HDEL', task, 'siding_until', 'siding_text')
  elseif kind == 'archive' then
    archive(queue, id)
    call('HSET', task, 'state', 'archived', 'msg', given.message)
    call('HDEL', task, 'siding_ticket', 'siding_until', 'siding_text')
    count(queue, 1)
  elseif kind == 'requeue' and lock ~= '' then
    local ends = until_of(have[4])
    wait_in_line(queue, id, lock_of(lock), have[3], ends, now)
    call('HSET', task, 'state', 'retry', 'siding_lock', lock_of(lock), 'siding_until', ends)
  elseif kind == 'requeue' then
    call('RPUSH', asynq(queue, 'pending'), id)
    call('HSET', task, 'state', 'pending')
    marked[queue] = true
  elseif kind == 'ask' then
    -- The attempt may go before those who wait if it came before them.
    local want, ticket = given.want, given.ticket
    local first = ours('ZRANGE', lines_of(want), 0, 0, 'WITHSCORES')
    local key, _, due = room(want)
    if key and (not first[1] or tonumber(first[2]) > tonumber(ticket)) then
      local fence = take_lock(key, attempt)
      call('ZADD', asynq(queue, 'lease'), in_seconds(ttl), id)
      call('HSET', task, 'siding_lock', key, 'siding_ticket', ticket)
      if holds then free(holds, queue) end
      return 'granted ' .. fence .. ' ' .. key
    end
    local ends = until_of(given.deadline)
    wait_in_line(queue, id, want, ticket, ends, due or now)
    call('HSET', task, 'state', 'retry', 'siding_lock', want, 'siding_ticket', ticket, 'siding_until', ends)
    call('HINCRBY', task, 'siding_parked', 1)
  end
  leaves(queue, id)
  if holds then free(holds, queue) end
  return kind == 'ask' and 'parked' or 'settled'
end

-- The second in which a time of so many us from now on ends: asynq cuts off fractions.
local function second_in(after) return digits(math.floor((now + tonumber(after)) / 1000000)) end

for i = 1, tonumber(arg()) do
  local queue, id, attempt, lock, kind = arg(), arg(), arg(), arg(), arg()
  local given = {}
  if kind == 'done' then given.unique = arg()
  elseif kind == 'complete' then given.unique, given.message, given.at = arg(), arg(), second_in(arg())
  elseif kind == 'retry' then given.message, given.at, given.counts = arg(), second_in(arg()), arg()
  elseif kind == 'again' then given.message, given.at, given.losses = arg(), second_in(arg()), arg()
  elseif kind == 'archive' then given.message = arg()
  elseif kind == 'ask' then given.want, given.ticket, given.deadline = arg(), arg(), arg()
  end
  local ok, result = pcall(settle, queue, id, attempt, lock, kind, given)
  if not ok then result = 'error ' .. (type(result) == 'table' and result.err or tostring(result)) end
  results[i] = result
  if string.sub(result, 1, 7) == 'granted' then
    for _, value in ipairs({i, queue, id, attempt, string.match(result, '^granted %d+ (.*)$')}) do granted[#granted + 1] = value end
  end
end
if #deleted > 0 then call('DEL', unpack(deleted)) end
for queue, ids in pairs(ended) do
  for _, id in ipairs(ids) do call('LREM', asynq(queue, 'active'), 1, id) end
  call('ZREM', asynq(queue, 'lease'), unpack(ids))
end
for queue, c in pairs(counts) do
  local full = false
  for i, what in ipairs({'processed', 'failed'}) do
    if c[i] > 0 then
      local day = asynq(queue, what .. ':' .. today)
      if call('INCRBY', day, c[i]) == c[i] then call('EXPIREAT', day, stats_until) end
      -- asynq begins both totals anew when that of the processed is full.
      full = full or type(try('INCRBY', asynq(queue, what), c[i])) == 'table'
      if full then call('SET', asynq(queue, what), 1) end
    end
  end
end

---------------------------------------------------------------------------------------------------------
-- Recover: what has crashed goes back to its place, before anybody looks at the lock.

-- Tasks without a lock, and those that have crashed too often, are left to upkeep: they use a retry. Returns
-- whether there may be more.
local function recover(queue, index)
  local lease = asynq(queue, 'lease')
  local back = #recovered
  for _, id in ipairs(call('ZRANGEBYSCORE', lease, '-inf', in_seconds(0), 'LIMIT', 0, MOST_CRASHED)) do
    local task = asynq(queue, 't:' .. id)
    local have = try('HMGET', task, 'state', 'siding_attempt', 'siding_lock', 'siding_ticket', 'siding_crashes', 'siding_deadline')
    local attempt, lock, ticket, crashed = have[2], have[3], have[4], tonumber(have[5] or '0')
    if have.err or have[1] ~= 'active' then -- no task, or one that is elsewhere
      if have.err then troubles[#troubles + 1] = task .. ': ' .. have.err end
      -- A script that failed in the middle may have taken it out of pending. If it is there, it is dropped once popped twice.
      if have[1] == 'pending' then call('RPUSH', asynq(queue, 'pending'), id) end
      call('LREM', asynq(queue, 'active'), 0, id)
      call('ZREM', lease, id)
    elseif attempt and lock and lock ~= '' and ticket then
      local key = held_by(lock, attempt)
      if key then -- its holder may trust it for so long
        call('ZADD', lease, in_seconds(math.max(call('PTTL', key), 1)), id)
      elseif crashed < free_crashes then
        local ends = until_of(have[6])
        lock = lock_of(lock)
        local _, _, due = room(lock)
        wait_in_line(queue, id, lock, ticket, ends, due or now)
        call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_until', ends, 'siding_crashes', crashed + 1)
        call('LREM', asynq(queue, 'active'), 0, id)
        call('ZREM', lease, id)
        recovered[#recovered + 1], recovered[#recovered + 2], recovered[#recovered + 3] = index, id, lock
      end
    end
  end
  return (#recovered - back) / 3 == MOST_CRASHED
end

---------------------------------------------------------------------------------------------------------
-- Fetch: tasks for the free slots.

local queues = {}
for i = 1, tonumber(arg()) do
  local name = arg()
  queues[i] = {
    index = i, name = name, turn = arg(),
    pending = asynq(name, 'pending'), active = asynq(name, 'active'), lease = asynq(name, 'lease'), retry = asynq(name, 'retry'),
    ready = siding(name, 'ready'), task = asynq(name, 't:'),
    next = 0, ids = {}, -- of pending, as read: the first is the head
    parked = 0,         -- how many of those have been parked, and are still in pending
    waits = {},         -- pairs for the retry set of those
    lines = {},         -- pairs for their lines, by lock
  }
end
local looks, parks, bytes, begun = MOST_LOOKS, MOST_PARKED, 0, 0
local late = math.abs(now - sent) > LATE

-- Begins an attempt, under a lock that it takes by a key, or '' for none. The caller has put the task into active.
local function start(q, id, task, lock, ticket, have, message)
  begun = begun + 1
  local attempt, fence = attempt_head .. begun .. holder, have.over and '-1' or '0'
  if lock ~= '' then fence = take_lock(lock, attempt) end
  call('ZADD', q.lease, in_seconds(lock ~= '' and ttl or 30000), id)
  call('HSET', task, 'state', 'active', 'siding_attempt', attempt, 'siding_lock', lock, 'siding_ticket', ticket)
  message = without(message, have.text)
  bytes = bytes + #message
  local n = #tasks
  tasks[n + 1], tasks[n + 2], tasks[n + 3], tasks[n + 4] = q.index, id, attempt, lock
  tasks[n + 5], tasks[n + 6], tasks[n + 7], tasks[n + 8], tasks[n + 9] = fence, ticket, have.parked or '0', have.losses or '0', message
end

-- Locks that this step has found busy: {value, the last ticket given}. None is freed from here on.
local busy = {}

-- Moves those that were parked out of pending.
local function flush(q)
  if q.parked == 0 then return end
  if #q.waits > 0 then call('ZADD', q.retry, unpack(q.waits)) end
  for lock, pairs_of_line in pairs(q.lines) do ours('ZADD', siding(q.name, 'line:' .. lock), unpack(pairs_of_line)) end
  call('LTRIM', q.pending, 0, -q.parked - 1)
  q.parked, q.waits, q.lines = 0, {}, {}
end

-- Ends the line of a queue, which has become empty. Whoever is parked next begins it again.
local function no_line(q, lock)
  call('ZREM', q.ready, lock)
  call('ZREM', lines_of(lock), q.name)
  if busy[lock] then busy[lock].joined[q.name] = nil end
end

-- Looks at a lock of the ready set that is due. Returns whether an attempt has begun.
local function look(q, lock)
  local key, value, due = room(lock)
  if type(value) == 'table' and value.err then
    troubles[#troubles + 1] = lock .. ': ' .. value.err
  end
  if not key then
    call('ZADD', q.ready, digits(due), lock)
    return false
  end
  flush(q) -- one of those may come first
  local line = siding(q.name, 'line:' .. lock)
  for _ = 1, MOST_HEADS do
    local heads = ours('ZRANGE', line, 0, 1, 'WITHSCORES')
    local id, ticket = heads[1], heads[2] and digits(tonumber(heads[2]))
    if not id then
      no_line(q, lock)
      return false
    end
    local task = q.task .. id
    local have = try('HMGET', task, 'state', 'siding_ticket', 'siding_until', 'siding_lock', 'siding_parked', 'siding_losses', 'siding_text', 'msg')
    local score = call('ZSCORE', q.retry, id)
    local waits = not have.err and have[1] == 'retry' and have[2] == ticket and have[4] == lock and have[8] and score and tonumber(score) == tonumber(have[3])
    if waits then
      call('LPUSH', q.active, id)
      start(q, id, task, key, ticket, {parked = have[5], losses = have[6], text = have[7]}, have[8])
      call('ZREM', q.retry, id)
    elseif have.err then
      troubles[#troubles + 1] = task .. ': ' .. have.err
      call('ZREM', q.retry, id)
    end
    call('ZREM', line, id)
    if heads[3] then
      call('ZADD', lines_of(lock), digits(tonumber(heads[4])), q.name)
      if waits then
        -- While the rule has room for more, the lock stays due.
        due = now + ttl * 1000
        if rule_of(lock) then
          local _, _, later = room(lock)
          due = later or now
        end
        call('ZADD', q.ready, digits(due), lock)
      end
    elseif waits then
      no_line(q, lock)
    end
    if waits then return true end
  end
  return false
end

-- Takes the first of the locks that are ready.
local function from_ready(q)
  while looks > 0 do
    if q.quiet then return false end
    looks = looks - 1
    local first = ours('ZRANGE', q.ready, 0, 0, 'WITHSCORES')
    if not first[1] or tonumber(first[2]) > now then
      q.quiet, q.first = true, first[2] -- until something is added
      return false
    end
    local ok, found = pcall(look, q, first[1])
    if not ok then
      troubles[#troubles + 1] = first[1] .. ': ' .. (type(found) == 'table' and found.err or tostring(found))
      call('ZADD', q.ready, digits(now + FOREIGN), first[1])
    elseif found then
      return true
    end
  end
  return false
end

local function park(q, id, task, lock, have)
  local b = busy[lock]
  local line = siding(q.name, 'line:' .. lock)
  local priority = tonumber(have.priority or '0') or 0
  local ticket = have.lock and lock_of(have.lock) == lock and tonumber(have.ticket)
  local own = ticket
  if not ticket and priority > 0 then ticket = now - priority * 60000000 end
  if not ticket then
    -- Behind all who came before, also if the clock has stepped back.
    local last = b.last[q.name]
    if not last then
      last = tonumber(ours('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or '0')
      local fence = try('GET', beside(lock, 'fence'))
      last = math.max(now, last, type(fence) == 'string' and tonumber(string.match(fence, '^%d+')) or 0)
    end
    ticket = last + 1
    b.last[q.name] = ticket
  end
  if not b.joined[q.name] or own or priority > 0 then
    ours('ZADD', lines_of(lock), 'LT', digits(ticket), q.name)
    ours('ZADD', q.ready, 'LT', digits(b.due), lock)
    b.joined[q.name], q.quiet = true, false
  end
  local ends = until_of(have.deadline)
  if b.text ~= '' and call('HSTRLEN', task, 'msg') <= SENTENCE then
    call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_ticket', digits(ticket), 'siding_until', ends,
      'siding_parked', (have.parked or 0) + 1, 'msg', without(call('HGET', task, 'msg'), have.text) .. b.text, 'siding_text', b.text)
  else
    call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_ticket', digits(ticket), 'siding_until', ends,
      'siding_parked', (have.parked or 0) + 1)
  end
  for _, value in ipairs({q.index, id, lock, b.value, digits(ticket), digits((have.parked or 0) + 1)}) do parked[#parked + 1] = value end
  local waits, pairs_of_line = q.waits, q.lines[lock]
  if not pairs_of_line then
    pairs_of_line = {}
    q.lines[lock] = pairs_of_line
  end
  waits[#waits + 1], waits[#waits + 2] = ends, id
  pairs_of_line[#pairs_of_line + 1], pairs_of_line[#pairs_of_line + 2] = digits(ticket), id
end

-- Returns the key by which a lock may be taken; nil if it is busy: held, or others wait for it.
local function free_key(lock, queue)
  if busy[lock] then return nil end
  local lines = call('EXISTS', lock, lines_of(lock))
  if lines == 0 and not rule_of(lock) then return lock end
  local key, value, due = room(lock)
  if key then
    local first = ours('ZRANGE', lines_of(lock), 0, 0)[1]
    if not first then return key end
    -- A line of another queue is older. If somebody serves that queue, nobody of this one goes before it.
    if first ~= queue and now - tonumber(call('HGET', slots, first) or '0') < SEEN then due = now + OFFER end
  end
  busy[lock] = {value = type(value) == 'string' and value or '', due = due or now, text = sentence(lock, value), last = {}, joined = {}}
  return nil
end

-- Takes the head of pending, or parks it. Returns whether an attempt has begun.
local function take(q, id)
  local task = q.task .. id
  local have = try('HMGET', task, 'state', 'siding_resource', 'siding_priority', 'siding_ticket', 'siding_lock', 'siding_deadline', 'siding_parked', 'siding_losses', 'siding_text')
  if have.err or have[1] ~= 'pending' then -- no task, or one that is elsewhere
    if have.err then troubles[#troubles + 1] = task .. ': ' .. have.err end
    q.parked = q.parked + 1
    return false
  end
  local resource, lock, key, ends = have[2], '', '', tonumber(have[6] or '') or 0
  local over = ends > 0 and ends <= now_s
  local known = {priority = have[3], ticket = have[4], lock = have[5], deadline = have[6], parked = have[7], losses = have[8], text = have[9], over = over}
  if resource and resource ~= '' and not over and #resource <= 512 and not string.find(resource, '[{}%c]') then
    lock = prefix .. resource
    key = free_key(lock, q.name)
    if not key then
      park(q, id, task, lock, known)
      q.parked = q.parked + 1
      return false
    end
  end
  flush(q)
  call('RPOPLPUSH', q.pending, q.active)
  local ticket = known.lock and lock ~= '' and lock_of(known.lock) == lock and known.ticket or digits(now)
  start(q, id, task, key, ticket, known, call('HGET', task, 'msg') or '')
  call('HDEL', task, 'pending_since')
  return true
end

local function from_pending(q)
  while parks > 0 and not q.empty do
    if q.next >= #q.ids then
      flush(q)
      local some = call('LRANGE', q.pending, -50, -1)
      q.ids, q.next = {}, 0
      for i = #some, 1, -1 do q.ids[#q.ids + 1] = some[i] end
      if #q.ids == 0 then
        q.empty = true
        return false
      end
    end
    q.next = q.next + 1
    if take(q, q.ids[q.next]) then return true end
    parks = parks - 1
  end
  return false
end

local function fetch(q)
  if q.paused == nil then
    q.paused = call('EXISTS', asynq(q.name, 'paused')) == 1
    q.crashed = recover(q.name, q.index) -- more than one step puts back: nobody may go before them
  end
  if q.paused or q.crashed then return false end
  local pending_first = q.turn == 'pending' -- no swap: the Lua of the Redis in memory assigns one after the other
  local from, other = pending_first and from_pending or from_ready, pending_first and from_ready or from_pending
  if from(q) then
    q.turn = q.turn == 'ready' and 'pending' or 'ready'
    return true
  end
  return other(q)
end

local free_slots = 0
for _ = 1, tonumber(arg()) do
  local order = arg()
  local found = late or bytes > MOST_BYTES
  for i = 1, #order do
    found = found or fetch(queues[string.byte(order, i)])
  end
  if not found then free_slots = free_slots + 1 end
end

---------------------------------------------------------------------------------------------------------
-- Answer.

-- include notify

local function tell(queue) notify(siding(queue, 'notify'), 1) end

local states, served = {}, {}
for i, q in ipairs(queues) do
  flush(q)
  local more, due = 0, -1
  if not q.paused then
    local first = q.first
    if not q.quiet then first = ours('ZRANGE', q.ready, 0, 0, 'WITHSCORES')[2] end
    if first then due = math.max(0, tonumber(first) - now) end
    if due == 0 or q.crashed or not q.empty and call('EXISTS', q.pending) == 1 then more = 1 end
    -- Others may have slots for what is left.
    if more == 1 and free_slots == 0 then tell(q.name) end
    if more == 0 and #tasks == 0 and free_slots > 0 then
      call('DEL', siding(q.name, 'notify')) -- there is nothing to tell any more
      served[#served + 1], served[#served + 2] = q.name, digits(now)
    end
  end
  states[#states + 1], states[#states + 2], states[#states + 3], states[#states + 4] = q.turn, q.paused and 1 or 0, more, due
  marked[q.name] = nil
end
if #served > 0 then call('HSET', slots, unpack(served)) end
for queue in pairs(marked) do tell(queue) end

-- Also what a step did that has taken nothing: a second call must not take what nobody waits for any more.
local texts = {digits(number) .. '\n'}
local function text(s)
  s = tostring(s)
  texts[#texts + 1] = #s .. ':'
  texts[#texts + 1] = s
end
text(#results)
for _, result in ipairs(results) do text(result) end
text(#granted / 5)
for _, value in ipairs(granted) do text(value) end
text(#tasks / 9)
for i = 1, #tasks, 9 do
  text(queues[tasks[i]].name)
  for k = i, i + 7 do text(tasks[k]) end
end
call('SET', KEYS[1], table.concat(texts), 'PX', 600000)
return {now, known, results, states, tasks, parked, recovered, troubles}
