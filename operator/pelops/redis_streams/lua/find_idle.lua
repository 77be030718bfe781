-- include: deliveries
-- Find pending entries of any owner that have been idle for a given time. Writes nothing.
--
-- KEYS     stream
-- ARGV     group, first, last ('': the ID of idle_ms ago), idle_ms: number, count: number, how
-- READS    time; xpending stream
-- WRITES   none
-- USER     operator for recovery
-- how  visit  return the idle ones among the first `count` entries, at a bounded cost
--      seek   return the first `count` idle entries: the server may visit every entry of the range
-- Costs  linear in count for visit; in the entries of the range for seek.
-- An entry that was created less than idle_ms ago cannot have been idle for that long, if IDs are
-- times of the server's clock. If they are not, the caller gives '+' as last.
-- Repeats safely: it writes nothing.

local seeks = how == 'seek'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if last == '' then
  last = string.format('%.0f', math.max(0, now - idle_ms))
end
local page
if seeks then
  page = redis.pcall('XPENDING', stream, group, 'IDLE', idle_ms, first, last, count)
else
  page = redis.pcall('XPENDING', stream, group, first, last, count)
end
if page.err then
  return string.find(page.err, 'NOGROUP', 1, true) and { 'no-group' } or page
end
local answer = { string.format('%.0f', now), #page, #page > 0 and page[#page][1] or '' }
for _, entry in ipairs(bound_deliveries(page)) do
  -- An entry that XNACK gave back to the group has no owner and an idle time of -1.
  if seeks or entry[3] >= idle_ms or entry[3] < 0 then
    answer[#answer + 1] = entry
  end
end
return answer
