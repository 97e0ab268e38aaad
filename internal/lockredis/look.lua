-- Reads a lock, and who waits for it: goroutines in its wait queue, and tasks in its lines.
--
-- KEYS[1]  lock
-- ARGV[1]  from    index of the first waiter that is listed, 0 for the first of all
-- ARGV[2]  count   how many waiters are listed
-- ARGV[3]  queue   of a task whose position is asked for
-- ARGV[4]  waiter  the id of that task, or ''
-- ARGV[5]  rates   of which it is asked when they allow another start, as a rule; or ''
--
-- Returns a list:
--   now            us
--   state          'held', 'reserved', 'foreign', 'free' or 'limited', as it is while permits are in use
--   holder         its name, or the waiter that the lock is reserved for
--   since          of the grant or the reservation, us or '0'
--   left           ms, -1 for no end
--   fence          the last, or '0'
--   revoking       1 if the lock is revoked, and its holder has not released it yet
--   revoked        {at, by, reason, holder} of the last revocation, if any
--   permits        those in use by number, seven values each: number, 'held' or 'reserved', the name of the holder or the
--                  waiter, fence or '0', ms left, 1 if the lease was revoked, since when in us
--   lines          three values for each line of tasks, the oldest head first: queue, how many wait, ticket of the head
--   goroutines     how many wait in the wait queue
--   first          the first ticket of all, or '0'
--   waiters        three values each: queue of a task or '', id of the task or name of the goroutine, ticket
--   position       of the waiter among all, or 0
--   next           from when on the rates allow another start, us, or '0' for now
--   rated          1 if some rates hold for the lock, maybe others than these
--
-- Guarantees: it changes nothing. It returns no token. Of each line it reads the first waiter, and as many as it has to list
-- of all.

local lock, from, count, queue, waiter, rates = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]

-- include beside
-- include common
-- include Permits
-- include locks

local function name_in(value) return type(value) == 'string' and string.match(value, '^siding:[^:]*:(.*)$') end
local function is_revoked(value) return has_prefix(value, 'siding:revoked-') and 1 or 0 end

local value = value_of(lock)
local state, holder, since, revoking = 'free', '', '0', 0
local last = digits(last_fence(lock))
if value then
  local at, whose = reserved(value)
  if at then
    state, holder, since = 'reserved', whose, digits(at)
  elseif name_in(value) then
    state, holder, since, revoking = 'held', name_in(value), last, is_revoked(value)
  else
    state = value == LIMITED and 'limited' or 'foreign'
  end
end

local permits, reservations = {}, 0
local in_use = call('HGETALL', Permits().permits_of(lock))
for i = 1, #in_use, 2 do
  local key = Permits().permit_of(lock, in_use[i])
  local held = value_of(key)
  local at, whose = reserved(held)
  local name = whose or name_in(held)
  if name then
    if at then reservations = reservations + 1 end
    permits[#permits + 1] = {tonumber(in_use[i]), at and 'reserved' or 'held', name, at and '0' or in_use[i + 1],
      call('PTTL', key), is_revoked(held), at and digits(at) or in_use[i + 1]}
  end
end
table.sort(permits, function(a, b) return a[1] < b[1] end)
local listed = {}
for _, permit in ipairs(permits) do
  for _, field in ipairs(permit) do listed[#listed + 1] = field end
end

local all, first, lines, goroutines = {{'', wait_queue_of(lock)}}, math.huge, {}, 0
local queues = call('ZRANGE', lines_of(lock), 0, -1)
for _, name in ipairs(queues) do all[#all + 1] = {name, siding(name, 'line:' .. lock)} end

local some = {}
for _, line in ipairs(all) do
  local n, head = call('ZCARD', line[2]), call('ZRANGE', line[2], 0, 0, 'WITHSCORES')[2]
  if head then first = math.min(first, tonumber(head)) end
  if line[1] == '' then
    goroutines = n
  elseif head then
    lines[#lines + 1], lines[#lines + 2], lines[#lines + 3] = line[1], n, digits(tonumber(head))
  end
  if head and count > 0 then
    local found = call('ZRANGE', line[2], 0, from + count - 1, 'WITHSCORES')
    for i = 1, #found, 2 do some[#some + 1] = {line[1], found[i], tonumber(found[i + 1])} end
  end
end
table.sort(some, function(a, b) return a[3] < b[3] or a[3] == b[3] and a[1] .. a[2] < b[1] .. b[2] end)
local waiters = {}
for i = from + 1, math.min(#some, from + count) do
  for _, field in ipairs({some[i][1], some[i][2], digits(some[i][3])}) do waiters[#waiters + 1] = field end
end

local own, position = siding(queue, 'line:' .. lock), 0
local ticket = waiter ~= '' and call('ZSCORE', own, waiter) or '0'
if ticket ~= '0' then
  position = call('ZRANK', own, waiter) + 1
  for _, line in ipairs(all) do
    if line[2] ~= own then position = position + call('ZCOUNT', line[2], '-inf', '(' .. ticket) end
  end
end

local rule, taken = Permits().parse_rule(rates), call('HMGET', beside(lock, 'revoked'), 'at', 'by', 'reason', 'holder')
taken = taken[1] and {taken[1], taken[2] or '', taken[3] or '', taken[4] or ''} or {}
return {digits(now), state, holder, since, call('PTTL', lock), last, revoking, taken, listed, lines, goroutines,
  digits(first < math.huge and first or 0), waiters, position,
  rule and digits(Permits().next_start(lock, rule.rates, reservations)) or '0', call('EXISTS', beside(lock, 'starts'))}
