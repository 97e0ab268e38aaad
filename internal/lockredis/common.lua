-- What the scripts on tasks and locks share: the clock, names, and what a lock holds.
--
-- A file that others include returns what they may use, and nothing else of it is theirs. Comes after beside.lua.

local call, try = redis.call, redis.pcall
local troubles = {} -- sentences for the log
local function digits(n) return string.format('%d', n) end
local function text_of(caught) return type(caught) == 'table' and caught.err or tostring(caught) end -- of what pcall has caught
local function has_prefix(text, prefix) return string.sub(text, 1, #prefix) == prefix end

-- Calls a command on a sorted set of ours. If somebody has put another type there, that goes: upkeep finds
-- again what waits. Any other error, such as for want of memory, is that of the second call.
local function ours(command, key, ...)
  local reply = try(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then
    troubles[#troubles + 1] = key .. ': ' .. reply.err
    call('DEL', key)
  end
  return call(command, key, ...)
end

local t = call('TIME')
local now = t[1] * 1000000 + t[2] -- us
local now_s = tonumber(t[1])      -- s

-- The time in so many ms, in seconds as asynq keeps it. It is rounded down, as Redis does with what expires.
local function in_seconds(ms) return string.format('%.3f', (math.floor(now / 1000) + ms) / 1000) end

-- The end of a lease, in seconds, of an attempt whose lock lasts for so many ms. The lease ends EARLIER by so many: whoever finds the
-- lock free puts back a task that has crashed before the next takes it. In the Redis in memory a lock may expire that early.
--   least  how many ms the lease lasts at least
local EARLIER = 100
local function leased(ms, least) return in_seconds(math.max(ms - EARLIER, least or 0)) end

-- When a task may wait no longer, by its deadline and the end of its wait in seconds: false, '' or 0 for none. 0 for never.
local function end_of(deadline, wait_ends)
  local a, b = tonumber(deadline or '') or 0, tonumber(wait_ends or '') or 0
  if a == 0 or b == 0 then return a + b end
  return math.min(a, b)
end

local WAIT = 3 * 3600       -- s: for so long a waiting task stays in the retry set, at most
local PLAIN_LEASE = 30000   -- ms: asynq's, of an attempt without a lock
local RECORD_KEPT = 600000  -- ms: of what a server's last step came to, unless it makes another or renews its attempts

-- Until when a task stays in the retry set while it waits, as a text; ends is that of end_of.
local latest
local function until_of(ends)
  if ends > 0 and ends < now_s + WAIT then return digits(math.max(ends, now_s)) end
  latest = latest or digits(now_s + WAIT)
  return latest
end

-- Keeps a task the only one of its kind for as long as it waits, and a minute more. The task then knows when that was to end.
--   key  its key of uniqueness; false for none
local function keep_unique(task, key, id, ends)
  if not key or try('GET', key) ~= id then return end
  local left = call('TTL', key)
  if left < 0 or left >= ends - now_s + 60 then return end -- below 0: it never ends
  call('HSETNX', task, 'siding_unique_until', now_s + left)
  call('EXPIREAT', key, ends + 60)
end

local function asynq(queue, rest) return 'asynq:{' .. queue .. '}:' .. rest end
local function siding(queue, rest) return 'siding:{' .. queue .. '}:' .. rest end
local function task_of(queue, id) return 'asynq:{' .. queue .. '}:t:' .. id end

-- The key of what belongs to a lock.
local function beside(lock, what) return base_of(lock) .. what end
local function wait_queue_of(lock) return beside(lock, 'queue') end
local function lines_of(lock) return beside(lock, 'lines') end

-- How many there are of a lock's wait queue and its lines: 0 if nobody waits for it.
local function waiting_for(lock)
  local base = base_of(lock)
  return call('EXISTS', base .. 'queue', base .. 'lines')
end

-- A task may need several locks. Their names, and the keys by which it holds them, are then one text, with a line break between
-- two of them, as no name has one.
local function several(locks) return string.find(locks, '\n', 1, true) end
local function each(locks) return string.gmatch(locks, '[^\n]+') end

-- Whether a lock is among these.
local function needs(locks, lock)
  return locks == lock or several(locks) and string.find('\n' .. locks .. '\n', '\n' .. lock .. '\n', 1, true) ~= nil
end

-- The lock of a permit; the key itself if it is that of a lock; or several of them.
local function lock_of(key)
  if not string.find(key, '}', 1, true) then return key end
  if several(key) then return (string.gsub(key, '[^\n]+', lock_of)) end
  return string.match(key, '^{(lock:[^}]*)}:permit:%d+$') or string.match(key, '^{([^}]*)}siding:permit:%d+$')
    or string.match(key, '^(.*}.*):siding:permit:%d+$') or key
end

-- The attempt that has the lock of an attempt: mostly itself. One that was begun to run under the lock of another one has the name
-- of that in its own, behind a line break in place of its second colon.
local function holder_of(attempt) return string.match(attempt, '^siding:[^:\n]*\n(.*)$') or attempt end

local RECHECK = 1000000          -- us: so often a lock is looked at whose holder may leave without telling
local LIMITED = 'siding-limited' -- what a lock holds while others hold permits of it, for programs that know of none

-- What a lock holds; a table if that is no text.
local function value_of(lock) return try('GET', lock) end

-- Since when a value reserves a lock, and for whom; nothing if it does not reserve it.
local function reserved(value)
  if type(value) ~= 'string' or not has_prefix(value, 'siding-reserved:') then return end
  local since, waiter = string.match(value, '^siding%-reserved:[^:]+:(%d+):(.*)$')
  return tonumber(since), waiter
end

-- The last fence of a lock, 0 if it is not known; and whether the lock has been reserved since.
local function last_fence(lock)
  local text = try('GET', beside(lock, 'fence'))
  local fence, mark = string.match(type(text) == 'string' and text or '', '^(%d+)(%*?)$')
  return tonumber(fence or 0), mark == '*'
end

-- In how many us somebody should look at a held lock whose value is this: when it expires, or soon if its
-- holder is a program that tells nobody when it leaves. A lock is there in the ms in which its time ends, and gone in
-- the next; it is not looked at again by this script.
local function look_in(lock, value)
  local left = call('PTTL', lock)
  if left < 0 then return RECHECK end
  left = math.max(left, 1) * 1000
  if type(value) == 'string' and has_prefix(value, 'siding:') then return left end
  return math.min(left, RECHECK)
end

-- Returns how to use a part of which most scripts need nothing: a function that returns the part's, and makes them when it is
-- called for the first time.
local function lazily(part)
  local names
  return function()
    names = names or part()
    return names
  end
end

return call, try, troubles, digits, text_of, has_prefix, ours, now, now_s, in_seconds, EARLIER, leased, end_of, WAIT, PLAIN_LEASE, RECORD_KEPT, until_of, keep_unique, asynq, siding, task_of, beside, wait_queue_of, lines_of, waiting_for, several, each, needs, lock_of, holder_of, RECHECK, LIMITED, value_of, reserved, last_fence, look_in, lazily
