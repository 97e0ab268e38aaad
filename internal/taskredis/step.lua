-- A step of a server: ends attempts and frees their locks, puts crashed tasks back into their places, and
-- takes tasks for the slots that are free.
--
-- KEYS[1]  record   what this server's last step in this lane came to, for a call that is made twice
-- KEYS[2]  slots    hash of queues by when a server of theirs had a free slot last, us
-- The other keys are those of the queues and locks that the arguments name; see doc.go.
--
-- ARGV     read in this order by the function arg, below
--   number, after, sent           of the step in its lane, from 1 on; of the last step there that was answered, 0 for none;
--                                 when it was sent by Redis' clock, us
--   attempt, holder               the first and last part of the names of the attempts that it begins
--   prefix, ttl, fence_ttl        of locks: what their keys begin with; ms; ms
--   handoff                       for how long a lock is reserved for a goroutine that came before the tasks, ms
--   crashes, again                how many crashes of a task use no retry; 1 if that holds for tasks without retries, too
--   limits, overrides             how many may hold a lock at once, and how often one may start: for each pattern of
--                                 resources a line break, the pattern, a tab, and a rule; see rule_of
--   judged                        kinds of tasks that have a policy, each between line breaks, or ''
--   today, stats_until            asynq's day for its statistics, and when they expire, Unix seconds
--   outcomes                      how many follow; each is queue, id, attempt, lock, trace, kind, and then; a lock, here and
--                                 below, may be several, with a line break between two of them, and their fences a comma
--     done                          unique
--     complete                      unique, message, for how long it is kept in us
--     retry                         message, in how many us it comes again, whether it counts as a failure, whether the task has
--                                   waited for too long, 'hold' if it keeps its place and those behind it wait until then, or ''
--     again                         message, in how many us it comes again, whether the task has waited for too long,
--                                   losses, whether it counts as a wait, 'hold' as above, 'first' if it is tried again when its
--                                   lock may be free, but at least until then, 'last' if it comes behind the others, or ''
--     archive                       unique, message, 'hold' if its line stops until an operator sets it going, or ''
--     requeue
--     more                          how many, what a message of the same kind begins with: the attempt goes on, and attempts of
--                                   so many tasks begin that wait for its lock and are first in its line
--     ask                           want, head start in us, deadline; and the policy: '', 'reject', 'coalesce' or 'replace',
--                                   what equal tasks have in common, how many may wait or 0, for how many s this one may
--                                   wait or 0; whether the task has no retries; whether it is unique whatever becomes of it
--   queues                        how many follow; each is name, whose turn it is: ready or pending
--   slots                         how many kinds follow; each is the queues to try, a byte each, 1 for the first; and how many slots
--
-- Returns {now in us, number of the step that was recorded last, results, queues, tasks, parked, recovered, troubles}; if
-- that number is neither this step's nor after, Redis has forgotten steps, the step has done nothing, and the rest is empty:
--   results   of the outcomes: 'settled', 'granted <fence> <key of the lock>', 'parked',
--             'rejected <how many wait, or 0> <what the lock holds>', 'coalesced <id of an equal task>', 'more', 'stale',
--             'lost', or 'error <text>'
--   queues    for each: 'ready' or 'pending', whose turn is next, or '' if no slot tried it; 1 if it is paused; 1 if it has more to
--             take; and in how many us its first lock should be looked at, -1 for never
--   tasks     eight values each: number of the queue, or below 0 of the outcome that has asked for more; id, attempt, lock, fence,
--             ticket, message, and '' or '<times parked> <losses> <when the lock was freed for it in us, or 0> <by whose trace>'; the fence is 0 without a lock, -1 if there is
--             none as the deadline of the task is over, and -2 if the task may wait no longer
--   parked    lists of five: number of the queue, or of the outcome below 0; lock, what that holds or '', id of the task whose
--             place was taken or ''; and the tasks, three values each: id, kind or '', times parked
--   recovered three values each: number of the queue, or of the outcome below 0; id and lock of a task whose server has died
--   troubles  sentences for the log
--
-- Guarantees: an outcome whose attempt is not its task's latest changes nothing. A lock is given to one
-- attempt at most, in order of the tickets in a line, and after goroutines that came before. A lock that an operator has
-- revoked is freed when its attempt ends, which has lost it. A task is in the sets of its new state before it
-- leaves those of the old one. A crashed task is back in its line before a lock is given to another task of its queue. A step
-- that is run again answers what it answered; one that is older than the last changes nothing; one that
-- comes late takes no tasks.
--
-- The order: settle all but those who ask; those who ask; those who ask for more; then a task for each slot, in turns of those
-- that wait and those that are pending; and the record of it all. What has crashed in a queue is put back before one of that
-- queue asks or is taken.

local at = 0
local function arg() at = at + 1 return ARGV[at] end
local function args(n) at = at + n return unpack(ARGV, at - n + 1, at) end

local number, after, sent = tonumber(arg()), tonumber(arg()), tonumber(arg())
local attempt_head, holder = arg(), arg()
local prefix, ttl, fence_ttl, handoff = arg(), arg(), arg(), tonumber(arg())
local free_crashes, no_retries_too = tonumber(arg()), arg() == '1'
local limits, overrides, judged = arg(), arg(), arg()
local today, stats_until = arg(), arg()
local given = {ttl = ttl, fence_ttl = fence_ttl, handoff = handoff} -- see locks.lua and queue.lua

local LATE = 2000000           -- us: a step that took longer to come takes nothing, as nobody may wait for it; nor does one from the future
local MOST_LOOKS, MOST_PARKED, MOST_BYTES, MOST_HEADS, MOST_CRASHED, MOST_ENDED = 100, 200, 1000000, 100, 20, 500
local HEAD_START = 60000000    -- us: of one level of priority
local ANSWERS = 2000           -- ms: within this time a server that has been told of a loss says what becomes of the task
local EQUAL_KEPT = 604800000   -- ms: for so long it is known which of equal tasks waits
local LONG = 255               -- bytes: of a text in the record that tells its size by itself
local SENTENCE = 16384         -- bytes: a longer message gets no sentence for people, as that would cost too much

local slots, cluster = KEYS[2], false -- a lock of a Cluster that a goroutine waits for is none that a step takes
local by = string.match(attempt_head, '^siding:(.*)%-$') -- the name of this call, for the reservations that it makes

-- include beside
-- include common
-- include asynq
-- include Permits
-- include locks
-- include Queue
-- include Lines
-- include free
-- include attempt
-- include Hold

local results, granted, tasks, parked, recovered = {}, {}, {}, {}, {}

-- Returns an encoded message without what was appended to it, if it still ends with that.
local function without(message, text)
  if text and text ~= '' and string.sub(message, -#text) == text then return string.sub(message, 1, -#text - 1) end
  return message
end

-- Returns what the answer says of the past of a task that begins: '' for most.
local function past(parked, losses, freed, freed_by)
  if not parked and not losses and freed == '0' then return '' end
  return (parked or '0') .. ' ' .. (losses or '0') .. ' ' .. freed .. ' ' .. freed_by
end

-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
call('EXPIRE', slots, '86400')

-- What was recorded of the last step: its number, a line break, and items of four texts, behind a byte for the size of each.
-- The first says how many results there are, and how many items of three kinds follow: results other than 'settled', attempts
-- that have asked for a lock and were given it, and attempts that have begun.
local record = call('GET', KEYS[1])
local known = record and tonumber(string.match(record, '^%d+')) or 0
if known > number then return redis.error_reply('SIDING step ' .. digits(number) .. ' comes after step ' .. digits(known)) end
if known == number then
  local from = string.find(record, '\n', 1, true) + 1
  local function item()
    local sizes, texts = {string.byte(record, from, from + 3)}, {}
    from = from + 4
    for i, size in ipairs(sizes) do
      if size == LONG then -- the size comes before the text, in digits and a colon
        local _, colon, n = string.find(record, '^(%d+):', from)
        size, from = tonumber(n), colon + 1
      end
      texts[i] = string.sub(record, from, from + size - 1)
      from = from + size
    end
    return unpack(texts)
  end
  local all, unsettled, grants, starts = item()
  for i = 1, tonumber(all) do results[i] = 'settled' end
  for _ = 1, tonumber(unsettled) do
    local i, result = item()
    results[tonumber(i)] = result
  end
  -- The caller trusts a lock from when it sent this call, so it has to last from now on.
  for _ = 1, tonumber(grants) do
    local i, queue, id, attempt = item()
    local lock = string.match(results[tonumber(i)], '^granted [%d,]+ (.*)$')
    if not renew(queue, id, attempt, lock) then results[tonumber(i)] = 'lost' end
  end
  for _ = 1, tonumber(starts) do
    local index, queue, id, fence = item()
    index = tonumber(index)
    local have = call('HMGET', asynq(queue, 't:' .. id), 'siding_attempt', 'siding_lock', 'siding_ticket', 'siding_parked', 'siding_losses', 'msg', 'siding_text')
    local attempt, lock = have[1] or '', string.find(fence, '^[1-9]') and have[2] or ''
    if begins(attempt, attempt_head) and renew(queue, id, attempt, lock) then
      for _, value in ipairs({index, id, attempt, lock, fence, have[3], without(have[6] or '', have[7]), past(have[4], have[5], '0', '')}) do
        tasks[#tasks + 1] = value
      end
    end
  end
  return {now, known, results, {}, tasks, parked, recovered, troubles}
end

-- After a failover the server has to know first what was forgotten. And this may be a late copy of a step that was answered
-- before: nobody would hear of what it takes.
if known ~= after then return {now, known, results, {}, tasks, parked, recovered, troubles} end

-- Returns what the dashboard shows of a task that waits for a lock, as a field of asynq's encoded message: the
-- last of a repeated field counts, so it is appended. It is for people; no code reads it. '' if it would not
-- be UTF-8, which asynq refuses.
local function sentence(lock, value)
  local holder = type(value) == 'string' and string.match(value, '^siding:[^:]*:([%w%p ]*)$')
  local text = 'waits for ' .. string.sub(lock, #prefix + 1) .. (holder and ', held by ' .. holder or value and value ~= LIMITED and not reserved(value) and ', held by another program' or ', in its turn')
  if string.find(text, '[\128-\255]') then
    local rest = string.gsub(text, '[\194-\223][\128-\191]', '')
    rest = string.gsub(rest, '[\225-\236\238\239][\128-\191][\128-\191]', '')
    rest = string.gsub(rest, '[\241-\243][\128-\191][\128-\191][\128-\191]', '')
    if string.find(rest, '[\128-\255]') then return '' end
  end
  local size = #text < 128 and string.char(#text) or string.char(128 + #text % 128, math.floor(#text / 128))
  return '\58' .. size .. text
end

-- Keeps a task the only one of its kind for as long as it waits, and a minute more.
local function keep_unique(key, id, ends)
  if key and call('GET', key) == id and call('TTL', key) < ends - now_s + 60 then call('EXPIREAT', key, ends + 60) end
end

-- Locks that this step has found busy: what they hold, when to look at them, the sentence for people; and by queue: the last
-- ticket given, whether it has joined the lines, and what the answer says of those parked. No task of pending gets one of them
-- from then on; a look at its line may still give it to the head.
local busy = {}

---------------------------------------------------------------------------------------------------------
-- Settle: what has ended. It has what becomes of those who ask, too; they come after Recover.

local ended = {}   -- by queue: ids that leave active and lease
local deleted = {} -- keys of tasks
local counts = {}  -- by queue: {processed, failed}

local function leaves(queue, id)
  ended[queue] = ended[queue] or {}
  table.insert(ended[queue], id)
end

local function counted(queue, failed)
  local c = counts[queue] or {0, 0}
  c[1], c[2] = c[1] + 1, c[2] + failed
  counts[queue] = c
end

-- How many wait for a lock.
local function waiting_for(lock)
  local n = call('ZCARD', queue_of(lock))
  for _, queue in ipairs(ours('ZRANGE', lines_of(lock), 0, -1)) do n = n + call('ZCARD', siding(queue, 'line:' .. lock)) end
  return n
end

-- Returns the queue and the id of a task that waits for a lock and is equal to another, when it came in us, its place, which
-- may be that of an earlier one that it has replaced, and when its wait ends; nil if there is none.
local function equal_of(lock, equal)
  local came, queue, id = string.match(call('HGET', beside(lock, 'equal'), equal) or '', '^(%d+)\n(.-)\n(.*)$')
  if not queue then return nil end
  local ticket = call('ZSCORE', siding(queue, 'line:' .. lock), id)
  local have = call('HMGET', asynq(queue, 't:' .. id), 'state', 'siding_equal', 'siding_lock', 'siding_deadline', 'siding_wait_ends', 'siding_priority')
  if not ticket or have[1] ~= 'retry' or have[2] ~= equal or have[3] ~= lock then return nil end
  local ends = end_of(have[4], have[5])
  if ends > 0 and ends <= now_s then return nil end -- it will not run
  return queue, id, tonumber(came), tonumber(ticket) + (tonumber(have[6] or '') or 0) * HEAD_START, tonumber(have[5] or '')
end

-- Deletes a task that waits.
local function delete_waiting(queue, id, lock)
  local task = asynq(queue, 't:' .. id)
  local unique = call('HGET', task, 'unique_key')
  if unique and call('GET', unique) == id then call('DEL', unique) end
  call('ZREM', siding(queue, 'line:' .. lock), id)
  call('ZREM', asynq(queue, 'retry'), id)
  call('DEL', task)
end

local to_upkeep = {} -- locks of tasks that have crashed, and that upkeep is about to end: nobody goes before these

-- Whether the line of another queue goes on: somebody serves the queue, and no task holds the line.
local function goes_on(queue, lock)
  local held = call('ZSCORE', siding(queue, 'held'), lock)
  return now - tonumber(call('HGET', slots, queue) or '0') < Lines().SEEN and not (held and (tonumber(held) or math.huge) > now)
end

-- Returns the keys by which a task with a ticket may take its locks: all, as they are free and nobody has come before it. Else nil,
-- what the first one holds that it cannot have, when to look at that, and which it is.
--   queue  the one in whose lines it waits: then lines of other queues that do not go on are not before it; nil if it asks
local function keys_for(locks, ticket, queue)
  local keys = {}
  for lock in each(locks) do
    local _, first = Lines().first_line(lock)
    local key, value, due = Queue().serve_found(lock, math.min(first, ticket), by)
    if key and first < ticket then
      for _, older in ipairs(ours('ZRANGEBYSCORE', lines_of(lock), '-inf', '(' .. digits(ticket))) do
        if not queue or older == queue or goes_on(older, lock) then key = nil end
      end
      if not key and not queue then due = now + Lines().OFFER end -- it is offered to the older one
    end
    if not key or to_upkeep[lock] then return nil, value, due or now, lock end
    keys[#keys + 1] = key
  end
  return table.concat(keys, '\n')
end

-- Settles an attempt that asks for a lock, or for several, which it gets all at once. It may go before those who wait if it came
-- before them. If a lock is busy, its policy says what becomes of it; but not if it has waited for it before, as then its handler
-- may have begun. Policies that compare tasks are for those that need one lock.
local function ask(queue, id, task, attempt, given)
  local have = call('HMGET', task, 'siding_ticket', 'siding_lock', 'siding_wait_ends', 'siding_kind', 'unique_key')
  local want, came, ticket = given.want, have[1], tonumber(have[1])
  local own = have[2] and lock_of(have[2]) == want
  if not own then ticket = ticket - given.head_start end
  if given.once == '1' then call('HSET', task, 'siding_once', 1) end
  if given.always == '1' then
    call('HDEL', task, 'unique_key') -- no wait prolongs that, and nobody deletes the key
    have[5] = nil
  end
  local key, value, due, first_busy = keys_for(want, ticket)
  if key then
    local fence = take_locks(key, attempt)
    call('ZADD', asynq(queue, 'lease'), in_seconds(ttl), id)
    call('HSET', task, 'siding_lock', key, 'siding_ticket', digits(ticket))
    return 'granted ' .. fence .. ' ' .. key
  end
  value = type(value) == 'string' and value or ''
  local replaced, equal, wait_ends = '', given.equal, tonumber(have[3] or '') or 0
  if not own then
    if given.on_busy == 'reject' then return 'rejected 0 ' .. value end
    local other_queue, other, other_came, place, others_end
    if equal ~= '' then other_queue, other, other_came, place, others_end = equal_of(want, equal) end
    -- Those who ask need not do so in the order in which they came.
    if other and (given.on_busy == 'coalesce' or other_came > tonumber(came)) then return 'coalesced ' .. other end
    if other then
      delete_waiting(other_queue, other, want)
      replaced, ticket = other, place - given.head_start
    elseif given.most > 0 then
      local n = waiting_for(want)
      if n >= given.most then return 'rejected ' .. n .. ' ' .. value end
    end
    if equal ~= '' then
      call('HSET', beside(want, 'equal'), equal, came .. '\n' .. queue .. '\n' .. id)
      call('PEXPIRE', beside(want, 'equal'), EQUAL_KEPT)
      call('HSET', task, 'siding_equal', equal)
    end
    if given.head_start > 0 then call('HSET', task, 'siding_priority', given.head_start / HEAD_START) end
    if given.max_wait > 0 then
      wait_ends = math.min(now_s + 1 + given.max_wait, others_end or math.huge)
      call('HSET', task, 'siding_wait_ends', wait_ends)
    end
  end
  local ends = until_of(end_of(given.deadline, wait_ends))
  Lines().wait_in_line(queue, id, want, digits(ticket), ends, several(want) and now or due)
  call('HSET', task, 'state', 'retry', 'siding_lock', want, 'siding_ticket', digits(ticket), 'siding_until', ends, 'siding_deadline', given.deadline)
  local text = sentence(first_busy, value ~= '' and value or nil)
  if text ~= '' and call('HSTRLEN', task, 'msg') <= SENTENCE then
    call('HSET', task, 'msg', without(call('HGET', task, 'msg'), call('HGET', task, 'siding_text')) .. text, 'siding_text', text)
  end
  keep_unique(have[5], id, ends)
  local times = call('HINCRBY', task, 'siding_parked', 1)
  parked[#parked + 1] = {-given.number, want, value, replaced, {id, have[4] or '', digits(times)}}
  return 'parked'
end

-- Puts a task at the head of pending.
local function to_pending(queue, id, task)
  call('RPUSH', asynq(queue, 'pending'), id)
  call('HSET', task, 'state', 'pending')
end

-- Returns the ticket of a task, and until when it stays in the retry set while it waits.
local function place_of(task)
  local ticket, deadline, wait_ends = unpack(call('HMGET', task, 'siding_ticket', 'siding_deadline', 'siding_wait_ends'))
  return ticket, until_of(end_of(deadline, wait_ends))
end

-- Frees the lock that an attempt held by a key, if any.
local function let_go(key, queue, trace)
  if key then free(key, trace ~= '' and by .. '-trace-' .. trace or by, queue) end
end

local function settle(queue, id, attempt, lock, trace, kind, given)
  local task = asynq(queue, 't:' .. id)
  local latest, state, task_lock = unpack(call('HMGET', task, 'siding_attempt', 'state', 'siding_lock'))
  -- lock is what the attempt trusts that it holds. If that is '', it has had none; or it does not trust its lock any more, and may
  -- hold it all the same, as the task says.
  local lock_owner = holder_of(attempt) -- the first of its batch, or itself
  local held_keys, revoked = held_by(lock ~= '' and lock or task_lock or '', lock_owner)
  local own_keys = lock_owner == attempt and held_keys or nil -- which it is to free
  if latest ~= attempt or state ~= 'active' then
    let_go(own_keys, queue, trace)
    if not state then leaves(queue, id) end -- the task was deleted: it is nowhere
    return 'stale'
  end
  -- One that is given back keeps its place without the lock, too. Else the server, which lives, is about to say what becomes of the
  -- task: it has not crashed. It may say that the task keeps its place, so nobody has its lock before: neither one that is revoked
  -- nor one that has run out, which is taken for revoked until then.
  local lost, asks = lock ~= '' and (not held_keys or revoked), kind == 'ask'
  if lost and asks then kind = 'requeue' end -- it is not at work yet
  if lost and kind ~= 'requeue' then
    call('ZADD', asynq(queue, 'lease'), in_seconds(PLAIN_LEASE), id)
    for one in each(lock) do -- but no permit; nor one that a failover has forgotten, which nobody would free
      if lock_of(one) == one and needs(task_lock or '', one) then call('SET', one, revoked_token(lock_owner), 'PX', ANSWERS, 'NX') end
    end
    return 'lost'
  end

  if given.late == '1' then call('HSET', task, 'siding_wait_ends', now_s) end -- its lock came too late
  local line_locks = task_lock and task_lock ~= '' and lock_of(task_lock) -- in whose lines its place is
  if kind == 'done' or kind == 'complete' then
    if kind == 'complete' then
      call('ZADD', asynq(queue, 'completed'), given.at, id)
      call('HSET', task, 'state', 'completed', 'msg', given.message)
      call('HDEL', task, 'siding_ticket')
    else
      deleted[#deleted + 1] = task
    end
    if given.unique ~= '' and call('GET', given.unique) == id then deleted[#deleted + 1] = given.unique end
    counted(queue, 0)
  elseif (kind == 'retry' or kind == 'again') and given.order == 'hold' and line_locks then
    local _, ends = place_of(task)
    Hold().hold_line(queue, id, task, line_locks, now + given.after)
    call('ZADD', asynq(queue, 'retry'), ends, id)
    call('HSET', task, 'state', 'retry', 'msg', given.message, 'siding_until', ends)
    call('HDEL', task, 'siding_text')
    if given.late ~= '1' then call('HDEL', task, 'siding_wait_ends') end
    if given.losses then call('HSET', task, 'siding_losses', given.losses) end
    if given.waits == '1' then call('HINCRBY', task, 'siding_parked', 1) end
    if given.counts == '1' then counted(queue, 1) end
  elseif kind == 'retry' then
    call('ZADD', asynq(queue, 'retry'), given.at, id)
    call('HSET', task, 'state', 'retry', 'msg', given.message)
    call('HDEL', task, 'siding_ticket', 'siding_lock', 'siding_until', 'siding_text')
    if given.late ~= '1' then call('HDEL', task, 'siding_wait_ends') end
    if given.counts == '1' then counted(queue, 1) end
  elseif kind == 'again' and given.order == 'first' and own_keys then
    local due, ticket, ends = now + given.after, place_of(task)
    let_go(own_keys, queue, trace)
    Lines().wait_in_line(queue, id, line_locks, ticket, ends, due)
    for lock in each(line_locks) do ours('ZADD', siding(queue, 'ready'), digits(due), lock) end
    call('HSET', task, 'state', 'retry', 'msg', given.message, 'siding_losses', given.losses, 'siding_lock', line_locks, 'siding_until', ends)
    call('HDEL', task, 'siding_text')
    if given.waits == '1' then call('HINCRBY', task, 'siding_parked', 1) end
    own_keys = nil
  elseif kind == 'again' then
    call('ZADD', asynq(queue, 'retry'), given.at, id)
    call('HSET', task, 'state', 'retry', 'msg', given.message, 'siding_losses', given.losses)
    if given.waits == '1' then call('HINCRBY', task, 'siding_parked', 1) end
    call('HDEL', task, 'siding_until', 'siding_text')
    if given.order == 'last' then call('HDEL', task, 'siding_ticket', 'siding_lock') end
  elseif kind == 'archive' then
    archive(queue, id, given.unique)
    call('HSET', task, 'state', 'archived', 'msg', given.message)
    call('HDEL', task, 'siding_until', 'siding_text', 'siding_wait_ends')
    if given.order == 'hold' and line_locks then
      Hold().hold_line(queue, id, task, line_locks, nil)
    else
      call('HDEL', task, 'siding_ticket', 'siding_lock')
    end
    counted(queue, 1)
  elseif kind == 'requeue' and lock ~= '' then
    local ticket, ends = place_of(task)
    Lines().wait_in_line(queue, id, lock_of(lock), ticket, ends, now)
    call('HSET', task, 'state', 'retry', 'siding_lock', lock_of(lock), 'siding_until', ends)
  elseif kind == 'requeue' then
    to_pending(queue, id, task)
    call('HDEL', task, 'pending_since') -- as asynq does, so that what has run does not look as if it had waited
    marked[queue] = true
  elseif kind == 'ask' then
    local result = ask(queue, id, task, attempt, given)
    if begins(result, 'granted') then let_go(own_keys, queue, trace) end
    if result ~= 'parked' then return result end
  end
  if kind ~= 'done' then call('HDEL', task, 'siding_attempt') end -- also a server of asynq may take it next
  leaves(queue, id)
  let_go(own_keys, queue, trace)
  return asks and 'parked' or 'settled'
end

-- The second in which a time of so many us from now on ends: asynq cuts off fractions.
local function second_in(after) return digits(math.floor((now + tonumber(after)) / 1000000)) end

local mores = {}
local asks = {} -- those come when what has crashed is back in its place, as none may go before it

local function settle_one(i, queue, id, attempt, lock, trace, kind, given)
  local ok, result = pcall(settle, queue, id, attempt, lock, trace, kind, given)
  if not ok then result = 'error ' .. (type(result) == 'table' and result.err or tostring(result)) end
  results[i] = result
  if begins(result, 'granted') then
    for _, value in ipairs({digits(i), queue, id, attempt}) do granted[#granted + 1] = value end
  end
end

for i = 1, tonumber(arg()) do
  local queue, id, attempt, lock, trace, kind = args(6)
  local given = {}
  if kind == 'done' then given.unique = arg()
  elseif kind == 'complete' then given.unique, given.message, given.at = arg(), arg(), second_in(arg())
  elseif kind == 'retry' then 
    given.message, given.after, given.counts, given.late, given.order = arg(), tonumber(arg()), arg(), arg(), arg()
    given.at = second_in(given.after)
  elseif kind == 'again' then
    given.message, given.after, given.late, given.losses, given.waits, given.order = arg(), tonumber(arg()), arg(), arg(), arg(), arg()
    given.at = second_in(given.after)
  elseif kind == 'archive' then given.unique, given.message, given.order = arg(), arg(), arg()
  elseif kind == 'ask' then
    given.number = i
    given.want, given.head_start, given.deadline = arg(), tonumber(arg()), arg()
    given.on_busy, given.equal, given.most, given.max_wait, given.once = arg(), arg(), tonumber(arg()), tonumber(arg()), arg()
    given.always = arg()
  elseif kind == 'more' then given.most, given.head = tonumber(arg()), arg()
  end
  if kind == 'ask' then
    asks[#asks + 1] = {i, queue, id, attempt, lock, trace, kind, given}
  elseif kind == 'more' then
    mores[#mores + 1] = {i, queue, id, attempt, given}
    results[i] = 'more'
  else
    settle_one(i, queue, id, attempt, lock, trace, kind, given)
  end
end

-- Takes what has ended out of the sets of what is at work.
local function clear()
  if #deleted > 0 then call('DEL', unpack(deleted)) end
  for queue, ids in pairs(ended) do
    for _, id in ipairs(ids) do call('LREM', asynq(queue, 'active'), '1', id) end
    call('ZREM', asynq(queue, 'lease'), unpack(ids))
  end
  deleted, ended = {}, {}
end

clear()
for queue, c in pairs(counts) do count(queue, c[1], c[2]) end

---------------------------------------------------------------------------------------------------------
-- Recover: what has crashed goes back to its place, before anybody looks at the lock.

local function leave_active(queue, id)
  call('LREM', asynq(queue, 'active'), 0, id)
  call('ZREM', asynq(queue, 'lease'), id)
end

-- Tasks without a lock, and those that have crashed too often, are left to upkeep: they use a retry. Does so once for
-- each queue, and returns whether there may be more.
--   index  what the answer has in place of the queue's name
local more_crashed = {}
local function recover(queue, index)
  if more_crashed[queue] ~= nil then return more_crashed[queue] end
  local lease = asynq(queue, 'lease')
  local before, seen = #recovered, MOST_ENDED
  local ended_leases = call('ZRANGEBYSCORE', lease, '-inf', in_seconds(0), 'LIMIT', 0, MOST_ENDED)
  for i, id in ipairs(ended_leases) do
    if (#recovered - before) / 3 == MOST_CRASHED then
      seen = i - 1
      break
    end
    local task = asynq(queue, 't:' .. id)
    local have = try('HMGET', task, 'state', 'siding_attempt', 'siding_lock', 'siding_ticket', 'siding_crashes', 'siding_deadline', 'siding_wait_ends', 'siding_once', 'siding_began', 'siding_resource')
    local attempt, lock, ticket, crashed = have[2], have[3], have[4], tonumber(have[5] or '0')
    local free_crash, back_in_line = crashed < free_crashes and (no_retries_too or not have[8] or have[9] ~= attempt), nil
    if have.err or have[1] ~= 'active' then -- no task, or one that is elsewhere
      if have.err then troubles[#troubles + 1] = task .. ': ' .. have.err end
      -- A script that failed in the middle may have taken it out of pending. If it is there, it is dropped once popped twice.
      if have[1] == 'pending' then to_pending(queue, id, task) end
      leave_active(queue, id)
    elseif attempt and lock and lock ~= '' and ticket then
      local key = held_by(lock, holder_of(attempt))
      if key then -- its holder may trust it for so long
        call('ZADD', lease, in_seconds(math.max(left_of(key), 1)), id)
      elseif free_crash then
        back_in_line = lock_of(lock)
        local ends, due = until_of(end_of(have[6], have[7])), nil
        if not several(back_in_line) then due = select(3, room(back_in_line)) end -- several are looked at together
        Lines().wait_in_line(queue, id, back_in_line, ticket, ends, due or now)
        call('HSET', task, 'state', 'retry', 'siding_lock', back_in_line, 'siding_until', ends)
      elseif crashed >= free_crashes then
        -- Upkeep is about to end it. Until then nobody of this queue goes before it, as it may be to hold its line. One that
        -- has crashed less often, and has no retries, is left alone for half a minute, as its server may live.
        local soon = now + FOREIGN
        for place in each(lock_of(lock)) do
          busy[place], to_upkeep[place] = {value = '', due = soon, text = sentence(place, nil), of = {}}, true
          ours('ZADD', siding(queue, 'ready'), 'XX', digits(soon), place)
        end
      end
    elseif attempt and have[10] and have[10] ~= '' and free_crash then
      -- It was to ask for its lock first, so its handler has not begun.
      back_in_line = prefix .. string.gsub(have[10], '\n', '\n' .. prefix)
      to_pending(queue, id, task)
    end
    if back_in_line then
      call('HSET', task, 'siding_crashes', crashed + 1)
      call('HDEL', task, 'siding_attempt')
      leave_active(queue, id)
      recovered[#recovered + 1], recovered[#recovered + 2], recovered[#recovered + 3] = index, id, back_in_line
    end
  end
  more_crashed[queue] = #ended_leases > seen
  return more_crashed[queue]
end

---------------------------------------------------------------------------------------------------------
-- Then those who ask for locks; those who ask for more; and Fetch: tasks for the free slots.

local names, turns = {}, {}
for i = 1, tonumber(arg()) do names[i], turns[i] = arg(), arg() end

-- The queues that a slot has tried, by their numbers: of many queues that a step names it tries a few.
local queues = {}
local function queue_at(i)
  local q, name = queues[i], names[i]
  if q then return q end
  q = {
    index = i, number = digits(i), name = name, turn = turns[i],
    pending = asynq(name, 'pending'), active = asynq(name, 'active'), lease = asynq(name, 'lease'), retry = asynq(name, 'retry'),
    ready = siding(name, 'ready'), task = asynq(name, 't:'),
    paused = call('EXISTS', asynq(name, 'paused')) == 1,
    blocked = recover(name, i), -- more have crashed than one step puts back: nobody may go before them
    ids = {}, next = 0,         -- of pending, as read: the first is the head
    passed = 0,                 -- how many of those have been parked or have begun, and are still in pending
    waits = {},                 -- of those that were parked: pairs for the retry set
    lines = {},                 -- likewise: pairs for their lines, by lock
    starts = {},                -- those that have begun
    leases = {},                -- of those: pairs for the set of leases
    seen = {},                  -- by id: whether it was taken out of pending in this step, where a repair may put it twice
    empty = false,              -- whether pending is
    quiet = false, first = nil, -- whether no lock is due, until something is added; when the first is
  }
  queues[i] = q
  return q
end

for _, one in ipairs(asks) do
  one.came = tonumber(try('HGET', asynq(one[2], 't:' .. one[3]), 'siding_ticket')) or 0
  recover(one[2], -one[1])
end
table.sort(asks, function(a, b) return a.came < b.came end)
for _, one in ipairs(asks) do settle_one(unpack(one, 1, 8)) end
clear()

-- How far this step has come. It is in a table, as the Lua of the Redis in memory cuts functions off from the local variables
-- around them when one has failed.
local so = {looks = MOST_LOOKS, parks = MOST_PARKED, bytes = 0, begun = 0, came = 0, large = false}
local late = math.abs(now - sent) > LATE
local BUT_THE_MESSAGE = {'state', 'unique_key', 'siding_resource', 'siding_priority', 'siding_ticket', 'siding_lock', 'siding_until', 'siding_deadline',
  'siding_parked', 'siding_losses', 'siding_text', 'siding_wait_ends', 'siding_kind', 'siding_judged', 'siding_equal', 'siding_held', 'siding_once', 'siding_crashes'}
-- Whole seconds, which sorted sets compare faster. A lease that ends before its lock is only looked at too early, but one of an
-- attempt that is to ask for its lock has to last: nothing else says that its server lives.
local lease_end, ask_end, plain_end = digits(now_s + math.floor(ttl / 1000)), digits(now_s + 1 + math.ceil(ttl / 1000)), digits(now_s + PLAIN_LEASE / 1000)

-- Returns the fields of a task, without its message if messages are large; what Redis says if it has no fields.
local function read(task)
  local have, reply = {}, nil
  if so.large then
    reply = try('HMGET', task, unpack(BUT_THE_MESSAGE))
    for i, value in ipairs(reply) do have[BUT_THE_MESSAGE[i]] = value end
  else
    reply = try('HGETALL', task)
    for i = 1, #reply, 2 do have[reply[i]] = reply[i + 1] end
  end
  have.err = reply.err
  return have
end

-- When a task that has no place yet came, us: for each that this step looks at a bit later, as they keep their order.
local function comes()
  so.came = so.came + 1
  return now + so.came
end

-- Begins an attempt of a task with these fields, under a lock that it takes by a key, or '' for none. The caller puts the
-- task among what is at work.
--   line  the lock for which it has waited last; nil if it is pending
--   over  '-1' or '-2' if it must not run, see above
local function start(q, id, task, lock, ticket, have, line, over)
  so.begun = so.begun + 1
  local kind = have.siding_kind
  local attempt, fence = attempt_head .. digits(so.begun) .. (q.under or ':' .. (kind and kind .. ' ' or '') .. id .. holder), over or '0'
  local freed, freed_by, before = '0', '', nil
  if line then fence, before = take_locks(lock, attempt) elseif lock ~= '' then fence = take_lock(lock, attempt) end
  if line then freed, freed_by = Lines().freed_for(line, before) end
  -- One that has no lock yet keeps the place that it has in the line of one.
  call('HSET', task, 'state', 'active', 'siding_attempt', attempt, 'siding_lock', lock ~= '' and lock or have.siding_lock or '', 'siding_ticket', ticket, 'siding_ttl', ttl)
  if have.siding_wait_ends and not over then call('HDEL', task, 'siding_wait_ends') end
  if have.siding_held then Hold().release_line(q.name, task, lock_of(have.siding_lock)) end
  local message = without(have.msg or call('HGET', task, 'msg') or '', have.siding_text)
  so.bytes = so.bytes + #message
  local n = #tasks
  tasks[n + 1], tasks[n + 2], tasks[n + 3], tasks[n + 4] = q.index, id, attempt, lock
  tasks[n + 5], tasks[n + 6], tasks[n + 7], tasks[n + 8] = fence, ticket, message, past(have.siding_parked, have.siding_losses, freed, freed_by)
end

-- Moves those that were parked, and those that have begun, out of pending.
local function flush(q)
  if q.passed == 0 then return end
  if #q.waits > 0 then call('ZADD', q.retry, unpack(q.waits)) end
  for lock, pairs_of_line in pairs(q.lines) do ours('ZADD', siding(q.name, 'line:' .. lock), unpack(pairs_of_line)) end
  if #q.starts > 0 then
    call('ZADD', q.lease, unpack(q.leases))
    call('LPUSH', q.active, unpack(q.starts))
  end
  call('LTRIM', q.pending, 0, -q.passed - 1)
  q.passed, q.waits, q.lines, q.starts, q.leases = 0, {}, {}, {}, {}
end

-- Ends the line of a queue, which has become empty. Whoever is parked next begins it again.
local function no_line(q, lock)
  call('ZREM', q.ready, lock)
  call('ZREM', lines_of(lock), q.name)
  if busy[lock] and busy[lock].of[q.name] then busy[lock].of[q.name].joined = false end
end

-- Keeps what is said of a line up to date, of which the head has left.
--   head, ticket  who is first now, nil for nobody
--   moves         whether its entry in the ready set is to follow, as the one that left has the lock, or nobody is left
local function next_in_line(q, lock, head, ticket, moves)
  if head then
    call('ZADD', lines_of(lock), digits(tonumber(ticket)), q.name)
    if not moves then return end
    -- While the rule has room for more, the lock stays due.
    local due = now + ttl * 1000
    if rule_of(lock) then
      local _, _, later = room(lock)
      due = later or now
    end
    call('ZADD', q.ready, digits(due), lock)
  elseif moves then
    no_line(q, lock)
  end
end

-- Reports whether a task waits for a lock with a ticket.
local function waits_for(q, id, have, lock, ticket)
  local score = call('ZSCORE', q.retry, id)
  return not have.err and have.state == 'retry' and have.siding_ticket == ticket and needs(have.siding_lock or '', lock) and score and tonumber(score) == tonumber(have.siding_until)
end

-- Begins an attempt of a task that has waited for a lock, and leaves its line to the caller.
--   key, line  as start has them
local function start_waiting(q, id, task, key, ticket, have, lock, line)
  call('LPUSH', q.active, id)
  call('ZADD', q.lease, q.lease_end or lease_end, id)
  local equal = have.siding_equal
  if equal and string.match(call('HGET', beside(lock, 'equal'), equal) or '', '\n(.*)$') == q.name .. '\n' .. id then
    call('HDEL', beside(lock, 'equal'), equal)
  end
  start(q, id, task, key, ticket, have, line)
  call('ZREM', q.retry, id)
end

-- Looks at a lock of the ready set that is due. Returns whether an attempt has begun.
local function look(q, lock)
  local key, value, due = room(lock)
  if type(value) == 'table' and value.err then
    troubles[#troubles + 1] = lock .. ': ' .. value.err
  end
  local function later(us)
    call('ZADD', q.ready, digits(us), lock)
    return false
  end
  if not key then return later(due) end
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
    local have = read(task)
    local waits = waits_for(q, id, have, lock, ticket)
    local goes_on_at = have.siding_held and Hold().holds_until(have.siding_held, have.state, waits)
    if goes_on_at then
      Hold().list_line(q.name, lock, have.siding_held) -- as several tasks may hold a line, and the one before may have ended its hold
      return later(math.min(goes_on_at, now + Hold().LOOK))
    end
    if waits and have.siding_lock ~= lock then
      -- Until it has them all it holds none. Whoever frees the others has their lines looked at; this is for those that tell nobody.
      key, value, due = keys_for(have.siding_lock, tonumber(ticket), q.name)
      if not key then return later(due > now and math.min(due, now + FOREIGN) or now + FOREIGN) end
    elseif waits and Queue().first_waiter(lock) then
      key, value, due = Queue().serve_found(lock, tonumber(ticket), by)
      if not key then return later(due) end
    end
    if waits then
      start_waiting(q, id, task, key, ticket, have, lock, lock)
    elseif have.err then
      troubles[#troubles + 1] = task .. ': ' .. have.err
      call('ZREM', q.retry, id)
    end
    if not waits then call('ZREM', siding(q.name, 'held'), lock) end -- as asynq's tools may have deleted the task that held it
    call('ZREM', line, id)
    next_in_line(q, lock, heads[3], heads[4], waits)
    if waits then
      for other in each(have.siding_lock) do
        if other ~= lock then
          local line = siding(q.name, 'line:' .. other)
          call('ZREM', line, id)
          local heads = ours('ZRANGE', line, 0, 0, 'WITHSCORES')
          next_in_line(q, other, heads[1], heads[2], true)
        end
      end
      return true
    end
  end
  return false
end

-- Begins attempts of the tasks that come next in the line of an attempt's lock, as long as they are of its kind and could run:
-- it runs them together with its own task. They have no lock of their own, and keep the ticket for the line. A task that has crashed
-- runs alone: else it would take its neighbours along each time.
local function more(i, queue, id, attempt, given)
  local known, state, lock, crashed = unpack(call('HMGET', asynq(queue, 't:' .. id), 'siding_attempt', 'state', 'siding_lock', 'siding_crashes'))
  local holds, revoked = held_by(lock or '', attempt)
  if late or crashed or known ~= attempt or state ~= 'active' or not holds or revoked or several(lock) then return end
  if recover(queue, -i) or call('EXISTS', asynq(queue, 'paused')) == 1 then return end
  lock = lock_of(lock)
  if to_upkeep[lock] then return end
  local q = {
    index = -i, number = digits(-i), name = queue, under = '\n' .. attempt, lease_end = in_seconds(left_of(holds)),
    active = asynq(queue, 'active'), lease = asynq(queue, 'lease'), retry = asynq(queue, 'retry'), ready = siding(queue, 'ready'),
  }
  queues[-i] = q
  local line = siding(queue, 'line:' .. lock)
  local heads, at = ours('ZRANGE', line, 0, given.most, 'WITHSCORES'), 1
  while heads[at] and at < 2 * given.most and so.bytes <= MOST_BYTES do
    local id, ticket = heads[at], digits(tonumber(heads[at + 1]))
    local task = asynq(queue, 't:' .. id)
    local have = read(task)
    local ends = end_of(have.siding_deadline, have.siding_wait_ends)
    if not waits_for(q, id, have, lock, ticket) or have.siding_lock ~= lock or have.siding_held or have.siding_once or have.siding_crashes or ends > 0 and ends <= now_s then break end
    if not begins(have.msg or call('HGET', task, 'msg') or '', given.head) then break end
    start_waiting(q, id, task, '', ticket, have, lock)
    call('ZREM', line, id)
    at = at + 2
  end
  if at > 1 then next_in_line(q, lock, heads[at], heads[at + 1], not heads[at]) end -- it comes due when it did before
end

-- Takes the first of the locks that are ready.
local function from_ready(q)
  while so.looks > 0 do
    if q.quiet then return false end
    so.looks = so.looks - 1
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

--   ends  as end_of has it
local function park(q, id, task, lock, have, ends)
  local b = busy[lock]
  local mine, line = b.of[q.name], siding(q.name, 'line:' .. lock)
  if not mine then
    mine = {joined = false, last = nil, parked = {}}
    b.of[q.name] = mine
    parked[#parked + 1] = {q.index, lock, b.value, '', mine.parked}
  end
  local priority = tonumber(have.siding_priority or '0') or 0
  local own = have.siding_lock and lock_of(have.siding_lock) == lock and tonumber(have.siding_ticket)
  local ticket = own
  if not ticket and priority > 0 then ticket = comes() - priority * HEAD_START end
  if not ticket then
    -- Behind all who came before, also if the clock has stepped back.
    if not mine.last then
      local last = tonumber(ours('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or '0')
      local fence = try('GET', beside(lock, 'fence'))
      mine.last = math.max(last, type(fence) == 'string' and tonumber(string.match(fence, '^%d+')) or 0)
    end
    ticket = math.max(comes(), mine.last + 1)
    mine.last = ticket
  end
  ticket = digits(ticket)
  if not mine.joined or own or priority > 0 then
    ours('ZADD', lines_of(lock), 'LT', ticket, q.name)
    ours('ZADD', q.ready, 'LT', digits(b.due), lock)
    mine.joined, q.quiet = true, false
  end
  local times = have.siding_parked and digits(have.siding_parked + 1) or '1'
  ends = until_of(ends)
  local message = b.text ~= '' and (have.msg or call('HSTRLEN', task, 'msg') <= SENTENCE and call('HGET', task, 'msg'))
  if message and #message <= SENTENCE then
    call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_ticket', ticket, 'siding_until', ends, 'siding_parked', times,
      'msg', without(message, have.siding_text) .. b.text, 'siding_text', b.text)
  else
    call('HSET', task, 'state', 'retry', 'siding_lock', lock, 'siding_ticket', ticket, 'siding_until', ends, 'siding_parked', times)
  end
  local said = mine.parked
  local n = #said
  said[n + 1], said[n + 2], said[n + 3] = id, have.siding_kind or '', times
  keep_unique(have.unique_key, id, ends)
  local waits, pairs_of_line = q.waits, q.lines[lock]
  if not pairs_of_line then
    pairs_of_line = {}
    q.lines[lock] = pairs_of_line
  end
  waits[#waits + 1], waits[#waits + 2] = ends, id
  pairs_of_line[#pairs_of_line + 1], pairs_of_line[#pairs_of_line + 2] = ticket, id
end

-- Returns the key by which a lock may be taken by a task with a ticket; nil if it is busy: held, or others wait for it.
local function free_key(lock, queue, ticket)
  if busy[lock] then return nil end
  local others = call('EXISTS', lock, lines_of(lock), queue_of(lock))
  if others == 0 and not rule_of(lock) then return lock end
  local first, oldest = Lines().first_line(lock)
  local key, value, due = Queue().serve_found(lock, math.min(ticket, oldest), by)
  if key then
    if not first then return key end
    -- A line of another queue is older. If somebody serves that queue, nobody of this one goes before it.
    if first ~= queue and now - tonumber(call('HGET', slots, first) or '0') < Lines().SEEN then due = now + Lines().OFFER end
  end
  busy[lock] = {value = type(value) == 'string' and value or '', due = due or now, text = sentence(lock, value), of = {}}
  return nil
end

-- Takes the head of pending, or parks it. Returns whether an attempt has begun.
local function take(q, id)
  local task = q.task .. id
  local have = read(task)
  local state, resource, place = have.state, have.siding_resource, have.siding_lock
  -- A script that failed in the middle may have been about to move it: then it is in no other set.
  local here = state == 'pending' or state == 'retry' and not call('ZSCORE', q.retry, id) or
    state == 'active' and not call('ZSCORE', q.lease, id)
  if have.err or q.seen[id] or not here then -- no task, or one that is elsewhere
    if have.err then troubles[#troubles + 1] = task .. ': ' .. have.err end
    q.passed = q.passed + 1
    return false
  end
  q.seen[id] = true
  local lock, key, ends, over = '', '', end_of(have.siding_deadline, have.siding_wait_ends), nil
  if ends > 0 and ends <= now_s then over = tonumber(have.siding_deadline or '') == ends and '-1' or '-2' end
  local own = have.siding_ticket and place and place ~= ''
  if own and have.siding_held and not over then
    -- Somebody has it run that holds its lines. It starts from there: those behind it must not go on while it asks for its locks.
    local waits_until = until_of(ends)
    Lines().wait_in_line(q.name, id, lock_of(place), have.siding_ticket, waits_until, now)
    call('HSET', task, 'state', 'retry', 'siding_until', waits_until, 'siding_held', digits(now))
    q.passed, q.quiet = q.passed + 1, false
    return false
  end
  -- A policy is read by Go, which then asks. A task that has waited before is past that.
  local asks = not own and (have.siding_judged or judged ~= '' and have.siding_kind and string.find(judged, '\n' .. have.siding_kind .. '\n', 1, true))
  -- Several locks, and names that Go checks, are asked for.
  if resource and resource ~= '' and not over and not asks and not several(resource) and #resource <= 512 and not string.find(resource, '[{}%c]') then
    lock = prefix .. resource
    key = free_key(lock, q.name, place and lock_of(place) == lock and tonumber(have.siding_ticket) or now)
    if not key then
      park(q, id, task, lock, have, ends)
      q.passed = q.passed + 1
      if have.msg then
        so.bytes = so.bytes + #have.msg
        so.large = #have.msg > SENTENCE -- then of the messages behind it only those are read that are needed
      end
      return false
    end
  end
  local ticket = own and (lock == '' or lock_of(place) == lock) and have.siding_ticket
  -- Also one that has not waited may come back to its place. Where it is to ask for its lock its priority is added then.
  if not ticket then ticket = digits(comes() - (lock ~= '' and tonumber(have.siding_priority or '0') or 0) * HEAD_START) end
  start(q, id, task, key, ticket, have, nil, over)
  local n = #q.starts
  q.starts[n + 1], q.leases[2 * n + 1], q.leases[2 * n + 2] = id, key ~= '' and lease_end or resource and resource ~= '' and ask_end or plain_end, id
  q.passed = q.passed + 1
  return true
end

-- Sets a task aside that cannot be taken, as a key of its resource has a wrong type. It comes again in a minute.
local function set_aside(q, id, why)
  troubles[#troubles + 1] = q.task .. id .. ': ' .. (type(why) == 'table' and why.err or tostring(why))
  try('HSET', q.task .. id, 'state', 'retry')
  try('HDEL', q.task .. id, 'siding_until')
  q.waits[#q.waits + 1], q.waits[#q.waits + 2] = digits(now_s + 60), id
  q.passed = q.passed + 1
end

local function from_pending(q)
  while so.parks > 0 and so.bytes <= MOST_BYTES and not q.empty do
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
    local id = q.ids[q.next]
    local ok, found = pcall(take, q, id)
    if not ok then set_aside(q, id, found) elseif found then return true end
    so.parks = so.parks - 1
  end
  return false
end

local function fetch(q)
  if q.paused or q.blocked then return false end
  local pending_first = q.turn == 'pending' -- no swap: the Lua of the Redis in memory assigns one after the other
  local from, other = pending_first and from_pending or from_ready, pending_first and from_ready or from_pending
  if from(q) then
    q.turn = q.turn == 'ready' and 'pending' or 'ready'
    return true
  end
  return other(q)
end

for _, m in ipairs(mores) do
  local ok, found = pcall(more, unpack(m))
  if not ok then troubles[#troubles + 1] = m[2] .. ': ' .. (type(found) == 'table' and found.err or tostring(found)) end
end

local slot_left = false -- that has found nothing
for _ = 1, tonumber(arg()) do
  local order, free = arg(), tonumber(arg())
  while free > 0 and not late and so.bytes <= MOST_BYTES do
    local found = false
    for i = 1, #order do
      found = found or fetch(queue_at(string.byte(order, i)))
    end
    if not found then -- nor do the others, as nothing is added from here on
      slot_left = true
      break
    end
    free = free - 1
  end
end

---------------------------------------------------------------------------------------------------------
-- Answer.

-- include notify

local function tell(queue) notify(siding(queue, 'notify'), 1) end

local states, served = {}, {}
for i, name in ipairs(names) do
  local q, turn, paused, has_more, due = queues[i], '', 0, 0, -1
  if q then
    flush(q)
    turn, paused = q.turn, q.paused and 1 or 0
    marked[name] = nil
  end
  if q and not q.paused then
    local first = q.first
    if not q.quiet then first = ours('ZRANGE', q.ready, 0, 0, 'WITHSCORES')[2] end
    if first then due = math.max(0, tonumber(first) - now) end
    if due == 0 or q.blocked or q.next < #q.ids or not q.empty and call('EXISTS', q.pending) == 1 then has_more = 1 end
    -- Others may have slots for what is left.
    if has_more == 1 and not slot_left then tell(name) end
    if has_more == 0 and #tasks == 0 and slot_left then
      call('DEL', siding(name, 'notify')) -- there is nothing to tell any more
    end
    if #names > 1 or slot_left then served[#served + 1], served[#served + 2] = name, digits(now) end
  end
  states[#states + 1], states[#states + 2], states[#states + 3], states[#states + 4] = turn, paused, has_more, due
end
if #served > 0 then
  call('HSET', slots, unpack(served)) -- the next step has it expire
end
for queue in pairs(marked) do tell(queue) end

-- Also what a step did that has taken nothing: a second call must not take what nobody waits for any more.
local texts, size = {digits(number) .. '\n'}, 1
local function item(a, b, c, d)
  local sizes
  if #a < LONG and #b < LONG and #c < LONG and #d < LONG then
    sizes = string.char(#a, #b, #c, #d)
  else
    sizes = string.char(LONG, LONG, LONG, LONG)
    a, b, c, d = digits(#a) .. ':' .. a, digits(#b) .. ':' .. b, digits(#c) .. ':' .. c, digits(#d) .. ':' .. d
  end
  texts[size + 1], texts[size + 2], texts[size + 3], texts[size + 4], texts[size + 5] = sizes, a, b, c, d
  size = size + 5
end
local unsettled = {}
for i, result in ipairs(results) do
  if result ~= 'settled' then unsettled[#unsettled + 1] = i end
end
item(digits(#results), digits(#unsettled), digits(#granted / 4), digits(#tasks / 8))
for _, i in ipairs(unsettled) do item(digits(i), results[i], '', '') end
for i = 1, #granted, 4 do item(granted[i], granted[i + 1], granted[i + 2], granted[i + 3]) end
for i = 1, #tasks, 8 do -- what the task itself says of its attempt is not written twice
  local q = queues[tasks[i]]
  item(q.number, q.name, tasks[i + 1], tasks[i + 4])
end
call('SET', KEYS[1], table.concat(texts), 'PX', RECORD_KEPT)
return {now, known, results, states, tasks, parked, recovered, troubles}
