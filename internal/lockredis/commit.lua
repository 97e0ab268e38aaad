-- Makes calls on locks, each on a lock of its own: those that came while the last ones were under way go together.
--
-- KEYS[i]  the lock of the call number i, or its permit
-- ARGV[1]  cluster  1 in a Cluster
-- ARGV     then for each call its kind, and its arguments in the order of FIELDS, below; the files of that name say what they are
--
-- Returns what each of the calls returns, in place of it an error if Redis refuses that call.
--
-- Guarantees: those of the calls. What becomes of one changes nothing for the others. All of them made twice are each made
-- twice.

local cluster, slots = ARGV[1] == '1', 'siding:slots'
local given = {} -- to the call that is made: a table, as in the Lua of the Redis in memory a call that fails cuts functions
                 -- off from the local variables around them

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
  acquire = {'token', 'ttl', 'fence_ttl', 'rule', 'waiter', 'waited', 'by', 'handoff', 'retention'},
  renew = {'token', 'ttl', 'fence_ttl'},
  release = {'token', 'fence', 'rule', 'by', 'handoff', 'fence_ttl'},
  leave = {'waiter', 'rule', 'by', 'handoff', 'fence_ttl'},
}

local at, results = 1, {}
for i, key in ipairs(KEYS) do
  at = at + 1
  local kind = ARGV[at]
  for _, name in ipairs(FIELDS[kind]) do
    at = at + 1
    given[name] = ARGV[at]
  end
  local ok, result = pcall(CALLS[kind], key)
  if not ok and type(result) ~= 'table' then result = redis.error_reply(tostring(result)) end
  results[i] = result
end
for queue in pairs(marked) do notify(siding(queue, 'notify'), 1) end
return results
