-- The scripts of this package begin with this text; it is put in front of each.
--
-- Returns which run of a server this is, and for how many whole seconds it has run, by its
-- own clock. A server that restarts is another run.
local function server()
  local info = redis.call('INFO', 'server')
  return string.match(info, 'run_id:(%w+)'), tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
end

