-- Makes calls on locks, each on a lock of its own: those that came while the last ones were under way go together.
--
-- KEYS[i]  the lock of the call number i, or its permit
-- ARGV[1]  cluster  1 in a Cluster
-- ARGV     then for each call five: its kind, with the rule of its lock after a space if there is one; and what FIELDS has for
--          that kind, below, from the fourth on as the lines of one text. The files named as the kinds say what it is
--
-- Returns what each of the calls returns, in place of it {'refused', error} if Redis refuses that call: go-redis reads no further
-- than some errors in a list. A replica refuses all: that is the error of the script, after which go-redis leaves the connection.
--
-- Guarantees: those of the calls. What becomes of one changes nothing for the others. All of them made twice are each made
-- twice.

local cluster, slots = ARGV[1] == '1', 'siding:slots'

-- include beside
-- include quick

-- Returns what makes any call, and what tells the servers of queues what calls have marked. Most scripts need neither, and
-- Redis makes all functions of a script anew each time that it runs.
local function parts()
  local given = {} -- to the call that is made

  -- include common
  -- include Permits
  -- include locks
  -- include Queue
  -- include Lines
  -- include free
  -- include notify
  -- include acquire
  -- include renew
  -- include release
  -- include leave

  local CALLS = {acquire = acquire, renew = renew, release = release, leave = leave}
  local FIELDS = {
    acquire = {'token', 'ttl', 'fence_ttl', 'waited', 'by', 'handoff', 'retention', 'waiter'},
    renew = {'token', 'ttl', 'fence_ttl'},
    release = {'token', 'handoff', 'fence_ttl', 'by', 'fence'},
    leave = {'waiter', 'handoff', 'fence_ttl', 'by'},
  }

  local function make(key, kind, first, second, third, others)
    local name, rule = string.match(kind, '^(%a+) ?(.*)$')
    local fields = FIELDS[name]
    given[fields[1]], given[fields[2]], given[fields[3]] = first, second, third
    for i = 4, #fields - 1 do
      local line = string.match(others, '^[^\n]*')
      given[fields[i]] = line
      others = string.sub(others, #line + 2)
    end
    if #fields > 3 then given[fields[#fields]] = others end
    given.rule = rule
    return CALLS[name](key)
  end

  local function tell()
    for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
  end

  return make, tell
end

local made = {} -- what parts returns: a table, as in the Lua of the Redis in memory a call that fails cuts functions off from
                -- the local variables around them

local function answer(key, kind, ...)
  local reply
  if kind == 'acquire' then reply = quick_take(key, ...) end
  if kind == 'release' then reply = quick_release(key, ...) end
  if reply then return reply end
  if not made.make then made.make, made.tell = parts() end
  return made.make(key, kind, ...)
end

local results = {}
for i, key in ipairs(KEYS) do
  local ok, result = pcall(answer, key, unpack(ARGV, 5 * i - 3, 5 * i + 1))
  local text = type(result) == 'table' and result.err or not ok and tostring(result)
  if text then
    if string.find(text, '^READONLY ') then return redis.error_reply(text) end
    result = {'refused', text}
  end
  results[i] = result
end
if made.tell then made.tell() end
return results
