-- Record when a process began, and return the entries that former processes of its name had started.
--
-- KEYS     worker_state, started  (same slot)
-- ARGV     me
-- READS    time; hget worker_state started
-- WRITES   hset worker_state
-- USER     sdk-worker
-- Costs  constant.
-- Repeats safely until the process reads its first entries. After that, a later time means a later process.
-- A process that leaves standby begins as a new one. All times differ, so a time identifies a process.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local former = tonumber(redis.call('HGET', worker_state, 'boot:' .. me) or '') or 0
if former >= tonumber(now) and former < tonumber(now) + 1000 then
  now = string.format('%.0f', former + 1) -- several processes began within this millisecond
end
local left = redis.call('HGET', started, me)
redis.call('HSET', worker_state, 'boot:' .. me, now)
return { now, left }
