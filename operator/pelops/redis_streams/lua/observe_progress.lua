-- Observe whether a consumer, and the other consumers of its group, finish entries. Writes nothing.
--
-- KEYS     stream
-- ARGV     group, consumer, limit: number (pending entries of the consumer to look at)
-- READS    time; xinfo|consumers stream; xpending stream
-- WRITES   none
-- USER     operator for recovery
-- RETURNS  {asked_ms (when the consumer last asked for entries), inactive_ms (since it was given
--          one), newest_ms (since the newest of its pending entries was delivered), others_ms (the
--          least since any other consumer was given one, of those that own none)} (-1 each for
--          never and for unknown: before Redis 7.2 the server does not tell when it gave, and only
--          reads that gave something count as asking)
--          | no-group
-- Costs  linear in the consumers of the group, and in limit.
-- Repeats safely: it only reads.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if found.err then
  if string.find(found.err, 'NOGROUP', 1, true) or string.find(found.err, 'no such key', 1, true) then
    return { 'no-group' }
  end
  return found
end
local asked, own, others = 0, -1, -1
for _, reply in ipairs(found) do
  local name, pending, idle, inactive = nil, 0, 0, -1
  for i = 1, #reply, 2 do
    if reply[i] == 'name' then
      name = reply[i + 1]
    elseif reply[i] == 'pending' then
      pending = reply[i + 1]
    elseif reply[i] == 'idle' then
      idle = reply[i + 1]
    elseif reply[i] == 'inactive' then
      inactive = reply[i + 1]
    end
  end
  if name == consumer then
    asked, own = now - idle, inactive
  elseif pending == 0 and inactive >= 0 and (others < 0 or inactive < others) then
    others = inactive
  end
end
local page, newest = redis.call('XPENDING', stream, group, '-', '+', limit, consumer), -1
for _, entry in ipairs(page) do
  newest = newest < 0 and entry[3] or math.min(newest, entry[3])
end
-- Of more entries than were looked at, one may be newer than all of these.
return { string.format('%.0f', asked), own, #page < limit and newest or 0, others }
