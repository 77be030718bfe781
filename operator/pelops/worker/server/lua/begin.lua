-- Say when a process began, and learn what former processes of its name left.
--
-- KEYS  state, started  (same slot)
-- ARGV  consumer
-- Returns  now_ms, the IDs that had started and not finished, separated by spaces, or false
-- Costs  little.
-- Repeats safely before the first read; afterwards a later time would pass for a later process, as which a
-- process begins anew that had stood by. No two times are the same: they tell processes apart.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local former = tonumber(redis.call('HGET', KEYS[1], 'boot:' .. ARGV[1]) or '') or 0
if former >= tonumber(now) and former < tonumber(now) + 1000 then
  now = string.format('%.0f', former + 1) -- several have begun within this millisecond
end
local left = redis.call('HGET', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[1], 'boot:' .. ARGV[1], now)
return { now, left }
