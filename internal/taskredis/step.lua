-- A step of a server: ends attempts and frees their locks, puts crashed tasks back into their places, and
-- takes tasks for the slots that are free.
--
-- KEYS[1]  record   what this server's last step in this lane came to, for a call that is made twice
-- KEYS[2]  slots    hash of queues by when a server of theirs had a free slot last, us
-- KEYS[3]  other    the record of its other lane
-- The other keys are those of the queues and locks that the arguments name; see doc.go.
--
-- ARGV     read in this order by the function arg, below
--   number, after, other_after    of the step in its lane, from 1 on; of the last step there that was answered, 0 for none; of the
--                                 last one in the other lane, 0 if no failover forgets it any more
--   sent                          when it was sent by Redis' clock, us
--   attempt, holder               the first and last part of the names of the attempts that it begins
--   prefix, ttl, fence_ttl        of locks: what their keys begin with; ms; ms
--   handoff                       for how long a lock is reserved for a goroutine that came before the tasks, ms
--   crashes, again                how many crashes of a task use no retry; 1 if that holds for tasks without retries, too
--   limits, overrides             how many may hold a lock at once, and how often one may start: for each pattern of
--                                 resources a line break, the pattern, a tab, and a rule; see rule_of
--   policy_kinds                  kinds of tasks that have a policy, each between line breaks, or ''
--   today, stats_until            asynq's day for its statistics, and when they expire, Unix seconds
--   outcomes                      how many follow; each is queue, id, attempt, lock, trace, kind, and then; a lock, here and
--                                 below, may be several, with a line break between two of them, and their fences a comma
--     done                          unique
--     complete                      unique, message, for how long it is kept in us
--     retry                         message, in how many us it comes again, whether it counts as a failure, whether the task has
--                                   waited for too long, 'hold' if it keeps its place and those behind it wait until then, or ''
--     snooze                        message, in how many us it comes again, whether the task has waited for too long,
--                                   losses, whether it counts as a wait, for how many s it may still wait or 0, 'hold' as above,
--                                   'head' if it goes back to its line, where somebody looks at it then at the latest, 'last' if
--                                   it comes behind the others, or ''
--     archive                       unique, message, 'hold' if its line stops until an operator sets it going, or ''
--     requeue                       whether its handler may have begun
--     more                          how many, what a message of the same kind begins with: the attempt goes on, and attempts of
--                                   so many tasks begin that wait for its lock and are first in its line
--     ask                           want, head start in us, deadline; and the policy: '', 'reject', 'coalesce' or 'replace',
--                                   what equal tasks have in common, how many may wait or 0, for how many s this one may
--                                   wait or 0; whether the task has no retries; whether it is unique whatever becomes of it
--   queues                        how many follow; each is name, whose turn it is: ready or pending
--   slots                         how many kinds follow; each is the queues to try, a byte each, 1 for the first; and how many slots
--
-- Returns {now in us, known, other_known, results, queues, tasks, parked, recovered, troubles}. The second and third are the
-- numbers of the steps that were recorded last in the two lanes. If known is neither this step's number nor after, or other_known is
-- below other_after, Redis has forgotten steps, the step has done nothing, and the rest is empty:
--   results   of the outcomes: 'settled', 'granted <fence> <key of the lock>', 'parked',
--             'rejected <how many wait, or 0> <what the lock holds>', 'coalesced <id of an equal task>', 'more', 'stale',
--             'lost', or 'error <text>'
--   queues    for each: 'ready' or 'pending', whose turn is next, or '' if no slot tried it; 1 if it is paused; 1 if it has more to
--             take; and in how many us its first lock should be looked at, -1 for never
--   tasks     eight values each: number of the queue, or below 0 of the outcome that has asked for more; id, attempt, lock, fence,
--             ticket, message, and '' or '<times parked> <losses> <1 if it has waited at this place until now, where its handler has
--             not begun> <when the lock was freed for it in us, or 0> <by whose trace>'; the fence is 0 without a lock, -1 if there is none as the
--             deadline of the task is over, and -2 if the task may wait no longer
--   parked    lists of five: number of the queue, or of the outcome below 0; lock, what that holds or '', id of the task whose
--             place was taken or ''; and the tasks, three values each: id, kind or '', times parked
--   recovered four values each: number of the queue, or of the outcome below 0; id, lock, and kind or '' of a task whose server has died
--   troubles  sentences for the log
--
-- Guarantees: an outcome whose attempt is not its task's latest changes nothing of the task, but frees the lock that the attempt
-- still has. A lock is given to one attempt at most, in order of the tickets in a line, and after goroutines that came before. A
-- lock that an operator has revoked is freed when its attempt ends, which has lost it. A task is in the sets of its new state
-- before it leaves those of the old one. A crashed task is back in its line before a lock is given to another task of its queue.
-- A step that is run again answers what it answered, but for attempts that have lost their lock since; one that is older than the
-- last changes nothing; one that comes late takes no tasks.
--
-- The order: settle all but those who ask; those who ask; those who ask for more; then a task for each slot, in turns of those
-- that wait and those that are pending; and the record of it all. What has crashed in a queue is put back before one of that
-- queue asks or is taken.

-- include beside
-- include common

local at = 0
local function arg() at = at + 1 return ARGV[at] end
local function args(n) at = at + n return unpack(ARGV, at - n + 1, at) end

local number, after, other_after, sent = tonumber(arg()), tonumber(arg()), tonumber(arg()), tonumber(arg())
local attempt_head, holder = arg(), arg()
local prefix, ttl, fence_ttl, handoff = arg(), arg(), arg(), tonumber(arg())
local free_crashes, no_retries_too = tonumber(arg()), arg() == '1'
local limits, overrides, policy_kinds = arg(), arg(), arg()
local today, stats_until = arg(), arg()
local given = {ttl = ttl, fence_ttl = fence_ttl, handoff = handoff} -- see locks.lua and queue.lua

local MAX_AGE = 2000000           -- us: a step that took longer to come takes nothing, as nobody may wait for it; nor does one from the future
local MOST, MOST_BYTES = {looks = 100, parks = 200}, 1000000
local BYTES_OF_PARK = 5000     -- of a message that is read to park its task: they cost as much as another task
local HEAD_START = 60000000    -- us: of one level of priority
local SENTENCE = 16384         -- bytes: a longer message gets no sentence for people, as that would cost too much
local LONG = 255               -- bytes: of a text in the record that tells its size by itself

local slots, cluster = KEYS[2], false -- a lock of a Cluster that a goroutine waits for is none that a step takes
local by = string.match(attempt_head, '^siding:(.*)%-$') -- the name of this call, for the reservations that it makes

local results, granted, tasks, parked, recovered = {}, {}, {}, {}, {}

-- How far this step has come. It is a table, as in the Lua of the Redis in memory functions lose the local variables that they
-- share when one of them has failed.
local progress = {looks = MOST.looks, parks = MOST.parks, bytes = 0, begun = 0, came = 0, large = false}
local aged = math.abs(now - sent) > MAX_AGE

-- Locks that this step has found busy: what they hold, or that they are free and others come first; when to look at them, the
-- sentence for people; and by queue: the last ticket given, whether it has joined the lines, and what the answer says of those
-- parked. No task of pending gets one of them from then on; a look at its line may still give it to the head.
local busy = {}
-- The queues that a slot has tried, by their numbers, and below 0 those of outcomes that ask for more. Of many queues that a step
-- names it tries a few.
local queues = {}
local to_upkeep = {} -- locks of tasks that have crashed, and that upkeep is about to end, with their queues: nobody goes before these
local more_crashed = {} -- by queue: whether more have crashed than this step puts back

-- Calls f for a queue. Returns whether it has not failed, as it does if a key of the queue is of another type: then the step goes
-- on with the others. The second is what f returns.
local function try_queue(queue, f, ...)
  local ok, result = pcall(f, ...)
  if ok then return true, result end
  troubles[#troubles + 1] = queue .. ': ' .. text_of(result)
  return false
end

-- include asynq
-- include Permits
-- include locks
-- include Queue
-- include Lines
-- include free
-- include attempt
-- include Hold
-- include start
-- include Parking
-- include Ask
-- include settle
-- include recover
-- include Ready
-- include fetch
-- include notify

-- Tells the servers of queues in which something has become ready.
local function tell()
  for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
end

-- A write that takes no memory comes first: then Redis refuses none of the others for want of memory.
call('EXPIRE', slots, '86400')

-- What was recorded of the last step: its number, a line break, and items of four texts, behind a byte for the size of each.
-- The first says how many results there are, and how many items of three kinds follow: results other than 'settled', attempts
-- that have asked for a lock and were given it, and attempts that have begun.
local record = call('GET', KEYS[1])
local known, other_known = record and tonumber(string.match(record, '^%d+')) or 0, 0
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
    local have = call('HMGET', task_of(queue, id), 'siding_attempt', 'siding_lock', 'siding_ticket', 'siding_parked', 'siding_losses', 'msg', 'siding_text', 'siding_until', 'siding_begun_at')
    local attempt, lock = have[1] or '', string.find(fence, '^[1-9]') and have[2] or ''
    if has_prefix(attempt, attempt_head) and renew(queue, id, attempt, lock) then
      for _, value in ipairs({index, id, attempt, lock, fence, have[3], without(have[6] or '', have[7]), past(have[4], have[5], have[8], have[9], have[3], '0', '')}) do
        tasks[#tasks + 1] = value
      end
    elseif has_prefix(attempt, attempt_head) then
      -- The lock of a batch has been lost since, or revoked. When its first attempt ends those behind it begin, so the others have
      -- to be back in their places by then; one that has a lock of its own is put back when that and its lease are over.
      give_back(queue, id, attempt, have[2])
    end
  end
  clear()
  tell()
  return {now, known, other_known, results, {}, tasks, parked, recovered, troubles}
end

-- After a failover the server says first again what was forgotten, whichever lane that went by. And this may be a late copy of a
-- step that was answered before: nobody would hear of what it takes.
if other_after > 0 or known ~= after then other_known = tonumber(string.match(call('GETRANGE', KEYS[3], 0, 20), '^%d+') or 0) end
if known ~= after or other_known < other_after then
  return {now, known, other_known, results, {}, tasks, parked, recovered, troubles}
end

---------------------------------------------------------------------------------------------------------
-- Settle: what has ended. Those who ask come after what has crashed, as they may not go before it.

-- The second in which a time of so many us from now on ends: asynq cuts off fractions.
local function second_in(after) return digits(math.floor((now + tonumber(after)) / 1000000)) end

local mores, asks = {}, {}
for i = 1, tonumber(arg()) do
  local queue, id, attempt, lock, trace, kind = args(6)
  local o = {}
  if kind == 'done' then o.unique = arg()
  elseif kind == 'complete' then o.unique, o.message, o.at = arg(), arg(), second_in(arg())
  elseif kind == 'retry' then
    o.message, o.after, o.counts, o.wait_over, o.order = arg(), tonumber(arg()), arg(), arg(), arg()
    o.at = second_in(o.after)
  elseif kind == 'snooze' then
    o.message, o.after, o.wait_over, o.losses, o.waits, o.max_wait, o.order = arg(), tonumber(arg()), arg(), arg(), arg(), tonumber(arg()), arg()
    o.at = second_in(o.after + 999999) -- it may come later, but not earlier
  elseif kind == 'archive' then o.unique, o.message, o.order = arg(), arg(), arg()
  elseif kind == 'ask' then
    o.number = i
    o.want, o.head_start, o.deadline = arg(), tonumber(arg()), arg()
    o.on_busy, o.equal, o.most, o.max_wait, o.once = arg(), arg(), tonumber(arg()), tonumber(arg()), arg()
    o.always = arg()
  elseif kind == 'requeue' then o.begun = arg()
  elseif kind == 'more' then o.most, o.head = tonumber(arg()), arg()
  end
  if kind == 'ask' then
    asks[#asks + 1] = {i, queue, id, attempt, lock, trace, kind, o}
  elseif kind == 'more' then
    mores[#mores + 1] = {i, queue, id, attempt, o}
    results[i] = 'more'
  else
    settle_one(i, queue, id, attempt, lock, trace, kind, o)
  end
end
clear()

---------------------------------------------------------------------------------------------------------
-- Then those who ask for locks; those who ask for more; and Fetch: tasks for the free slots.

local names, turns = {}, {}
for i = 1, tonumber(arg()) do names[i], turns[i] = arg(), arg() end

-- Returns what a queue may use up of what is left for all: half of it, as others may come that have tasks to begin.
local function share(left) return math.ceil(math.max(1, left) / math.min(2, #names)) end

-- Returns what the step knows of a queue that it names.
local function queue_at(i)
  local q, name = queues[i], names[i]
  if q then return q end
  q = {
    index = i, number = digits(i), name = name, turn = turns[i],
    pending = asynq(name, 'pending'), active = asynq(name, 'active'), lease = asynq(name, 'lease'), retry = asynq(name, 'retry'),
    ready = siding(name, 'ready'), task = task_of(name, ''),
    paused = call('EXISTS', asynq(name, 'paused')) == 1,
    ids = {},                   -- of pending, as read: the last is the head
    reads = 10,                 -- how many of those are read next
    passed = 0,                 -- how many of those have been parked or have begun, and are still in pending
    waits = {},                 -- of those that were parked: pairs for the retry set
    lines = {},                 -- likewise: pairs for their lines, by lock
    starts = {},                -- those that have begun
    leases = {},                -- of those: pairs for the set of leases
    empty = false,              -- whether pending is
    quiet = false, first = nil, -- whether no lock is due, until something is added; when the first is
    looks = share(progress.looks), -- how many locks may be looked at in vain
    parks = share(progress.parks), -- how many tasks may be parked
    spoilt = false,             -- whether one of asynq's keys of the queue is of another type
  }
  queues[i] = q
  return q
end

for _, one in ipairs(asks) do
  one.came = tonumber(try('HGET', task_of(one[2], one[3]), 'siding_ticket')) or 0
  try_queue(one[2], recover, one[2], -one[1])
end
table.sort(asks, function(a, b) return a.came < b.came end)
for _, one in ipairs(asks) do settle_one(unpack(one, 1, 8)) end
clear()

for _, m in ipairs(mores) do try_queue(m[2], Ready().more, unpack(m)) end

local slot_left = false -- that has found nothing
for _ = 1, tonumber(arg()) do
  local order, free = arg(), tonumber(arg())
  while free > 0 and not aged and progress.bytes <= MOST_BYTES do
    local found = false
    for i = 1, #order do
      local q = queue_at(string.byte(order, i))
      if not q.spoilt then
        local ok, has = try_queue(q.name, fetch, q)
        q.spoilt, found = not ok, has
      end
      if found then break end
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

local states, served = {}, {}
for i, name in ipairs(names) do
  local q, turn, paused, has_more, due = queues[i], '', 0, 0, -1
  if q then
    if not try_queue(name, flush, q) then q.spoilt = true end
    if q.spoilt then q.paused = true end -- it is asked again in a moment, as a queue that is paused
    turn, paused = q.turn, q.paused and 1 or 0
    marked[name] = nil
  end
  if q and not q.paused then
    local first = q.first
    if not q.quiet then first = ours('ZRANGE', q.ready, 0, 0, 'WITHSCORES')[2] end
    if first then due = math.max(0, tonumber(first) - now) end
    if due == 0 or more_crashed[name] or #q.ids > 0 or not q.empty and call('EXISTS', q.pending) == 1 then has_more = 1 end
    -- Others may have slots for what is left.
    if has_more == 1 and not slot_left then notify(siding(name, 'notify'), 1) end
    if has_more == 0 and #tasks == 0 and slot_left then
      call('DEL', siding(name, 'notify')) -- there is nothing to tell any more
    end
    served[#served + 1], served[#served + 2] = name, digits(now)
  end
  states[#states + 1], states[#states + 2], states[#states + 3], states[#states + 4] = turn, paused, has_more, due
end
if #served > 0 then
  call('HSET', slots, unpack(served)) -- the next step has it expire
end
tell()

-- Also what a step did that has taken nothing: a second call must not take what nobody waits for any more.
local texts = {digits(number) .. '\n'}
local function item(a, b, c, d)
  local sizes
  if #a < LONG and #b < LONG and #c < LONG and #d < LONG then
    sizes = string.char(#a, #b, #c, #d)
  else
    sizes = string.char(LONG, LONG, LONG, LONG)
    a, b, c, d = digits(#a) .. ':' .. a, digits(#b) .. ':' .. b, digits(#c) .. ':' .. c, digits(#d) .. ':' .. d
  end
  texts[#texts + 1] = sizes .. a .. b .. c .. d
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
return {now, known, other_known, results, states, tasks, parked, recovered, troubles}
