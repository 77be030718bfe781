-- Observe whether a consumer, and the other consumers of its group, finish entries. Writes nothing.
--
-- KEYS     stream
-- ARGV     group, consumer, limit: number (pending entries of the consumer to look at)
-- READS    time; xinfo|consumers stream; xpending stream
-- WRITES   none
-- USER     operator for recovery
-- A time is -1 if it is not known, or if it never happened. `others` are consumers without pending entries.
-- Before Redis 7.2 the server does not report when a consumer was last given an entry, and only reads that
-- returned entries count as asking.
-- Costs  linear in the consumers of the group, and in limit.
-- Repeats safely: it writes nothing.

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
-- If more entries than `limit` are pending, one of the others may be newer: newest_ms is 0 then.
return { string.format('%.0f', asked), own, #page < limit and newest or 0, others }
