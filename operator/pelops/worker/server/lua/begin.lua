-- Record when a process began, and return the entries that former processes of its name had started.
--
-- KEYS     worker_state, started  (same slot)
-- ARGV     me
-- READS    time; hget worker_state started
-- WRITES   hset worker_state
-- USER     sdk-worker
-- RETURNS  {now_ms, left (the IDs that had started and not finished, separated by spaces, or false)}
-- Costs  little.
-- Repeats safely before the first read. After it, a later time means a later process; a process that was
-- on standby begins as one. No two times are the same, so they identify processes.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local former = tonumber(redis.call('HGET', worker_state, 'boot:' .. me) or '') or 0
if former >= tonumber(now) and former < tonumber(now) + 1000 then
  now = string.format('%.0f', former + 1) -- several have begun within this millisecond
end
local left = redis.call('HGET', started, me)
redis.call('HSET', worker_state, 'boot:' .. me, now)
return { now, left }
