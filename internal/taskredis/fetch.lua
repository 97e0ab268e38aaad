-- A part of a step, fetching: a task for a free slot, from pending or from the ready set.
--
-- Comes after ready.lua.

-- Returns the key by which a lock may be taken by a task with a ticket; nil if it is busy: held, or others wait for it.
local function free_key(lock, ticket)
  if busy[lock] then return nil end
  local base = base_of(lock)
  if call('EXISTS', lock, base .. 'queue', base .. 'lines') == 0 and not rule_of(lock) then return lock end -- as mostly
  local first, oldest = Lines().first_line(lock)
  local key, value, due = Queue().reserve_found(lock, math.min(ticket, oldest), by)
  if key and not first then return key end
  busy[lock] = {value = type(value) == 'string' and value or '', due = due or now, free = key ~= nil, text = Parking().sentence(lock, value), of = {}}
  return nil
end

-- Whether a queue has something left of its share. Shares are given out when a queue is tried first, maybe all before one of them
-- is used up: together the queues use up twice as much as one alone, at most.
local function has_left(q, what) return q[what] > 0 and progress[what] > -MOST[what] end

-- Notes what a queue has used up.
local function spend(q, what, n) q[what], progress[what] = q[what] - n, progress[what] - n end

-- Begins an attempt of the head of pending, or parks it, or puts it back at the place that it has. One that is elsewhere by now is
-- dropped. Returns whether an attempt has begun.
local function take_or_park(q, id)
  local task = q.task .. id
  local have = read(task)
  local state, resource, locks = have.state, have.siding_resource, have.siding_lock
  -- A script that failed in the middle may have been about to move it: then it is not in the set of its state. Or it is in pending
  -- twice, and was moved by this step.
  if state ~= 'pending' then flush(q) end
  local here = state == 'pending' or state == 'retry' and not call('ZSCORE', q.retry, id) or
    state == 'active' and not call('ZSCORE', q.lease, id)
  if have.err or not here then -- no task, or one that is elsewhere
    if have.err then troubles[#troubles + 1] = task .. ': ' .. have.err end
    q.passed = q.passed + 1
    return false
  end
  local lock, key, ends, no_run = '', '', end_of(have.siding_deadline, have.siding_wait_ends), nil
  if ends > 0 and ends <= now_s then no_run = tonumber(have.siding_deadline or '') == ends and '-1' or '-2' end
  local own = have.siding_ticket and locks and locks ~= ''
  -- Else it asks for its locks: several, one whose name Go checks, or one of which a plain client has not told.
  local one_lock = resource and resource ~= '' and not several(resource) and #resource <= 512 and not string.find(resource, '[{}%c]')
  if own and not no_run and (have.siding_held or not one_lock or lock_of(locks) ~= prefix .. resource) then
    -- It starts from its place. Those behind it must not go on while it asks for its locks; and parked under another one than it waits
    -- for, it would have a new ticket there, and leave the old one behind.
    Lines().wait_in_line(q.name, id, lock_of(locks), have.siding_ticket, until_of(ends), now)
    if have.siding_held then
      call('HSET', task, 'siding_held', digits(now))
      for one in each(lock_of(locks)) do Hold().list_line(q.name, one, digits(now)) end
    end
    q.passed, q.quiet = q.passed + 1, false
    return false
  end
  -- A policy is read by Go, which then asks. A task that has waited before is past that.
  local asks = not own and (have.siding_policy or policy_kinds ~= '' and have.siding_kind and string.find(policy_kinds, '\n' .. have.siding_kind .. '\n', 1, true))
  if one_lock and not no_run and not asks then
    lock = prefix .. resource
    key = free_key(lock, own and tonumber(have.siding_ticket) or now)
    if not key then
      Parking().park(q, id, task, lock, have, ends)
      q.passed = q.passed + 1
      if have.msg then
        spend(q, 'parks', #have.msg / BYTES_OF_PARK)
        progress.large = #have.msg > SENTENCE -- then of the messages behind it only those are read that are needed
      end
      return false
    end
  end
  -- Also one that has not waited yet may come back to its place. Where it is to ask for its lock its priority is added then.
  local ticket = have.siding_ticket
  if not ticket then ticket = digits(new_ticket() - (lock ~= '' and tonumber(have.siding_priority or '0') or 0) * HEAD_START) end
  start(q, id, task, key, ticket, have, nil, no_run)
  local n = #q.starts
  q.starts[n + 1], q.leases[2 * n + 1], q.leases[2 * n + 2] = id, key ~= '' and lease_end or resource and resource ~= '' and ask_end or plain_end, id
  q.passed = q.passed + 1
  return true
end

-- Puts off a task that cannot be taken, as a key of its resource has a wrong type. It comes again in a minute.
local function put_off(q, id, why)
  troubles[#troubles + 1] = q.task .. id .. ': ' .. text_of(why)
  try('HSET', q.task .. id, 'state', 'retry')
  try('HDEL', q.task .. id, 'siding_until')
  q.waits[#q.waits + 1], q.waits[#q.waits + 2] = digits(now_s + 60), id
  q.passed = q.passed + 1
end

local function from_pending(q)
  while has_left(q, 'parks') and not q.empty do
    if #q.ids == 0 then
      flush(q)
      q.ids = call('LRANGE', q.pending, -q.reads, -1)
      if #q.ids == 0 then
        q.empty = true
        return false
      end
      q.reads = 50 -- now that they are not enough
    end
    local id = table.remove(q.ids)
    local ok, found = pcall(take_or_park, q, id)
    if not ok then put_off(q, id, found) elseif found then return true end
    spend(q, 'parks', 1)
  end
  return false
end

-- Takes the first of the locks that are ready.
local function from_ready(q)
  while has_left(q, 'looks') do
    if q.quiet then return false end
    local first = ours('ZRANGE', q.ready, 0, 0, 'WITHSCORES')
    if not first[1] or tonumber(first[2]) > now then
      q.quiet, q.first = true, first[2] -- until something is added
      return false
    end
    local ok, found = pcall(Ready().look, q, first[1])
    if not ok then
      troubles[#troubles + 1] = first[1] .. ': ' .. text_of(found)
      call('ZADD', q.ready, digits(now + RECHECK), first[1])
    elseif found then
      return true
    end
    spend(q, 'looks', 1)
  end
  return false
end

local function fetch(q)
  if recover(q.name, q.index) or q.paused then return false end -- nobody goes before what has crashed
  local pending = q.turn == 'pending'
  for _ = 1, 3 do -- as a task that goes to its line may make that ready
    local take_from = pending and from_pending or from_ready
    if take_from(q) then
      q.turn = pending and 'ready' or 'pending'
      return true
    end
    pending = not pending
  end
  return false
end

return fetch
