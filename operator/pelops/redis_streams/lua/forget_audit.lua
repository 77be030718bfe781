-- include: entry
-- Delete what an audit recorded about a group, so that the ledger no longer waits for that audit.
--
-- KEYS     audit
-- ARGV     name (of the audit)
-- READS    type audit; hmget! audit
-- WRITES   hset audit; hdel audit
-- USER     operator
-- Costs  constant.
-- Repeats safely: the second run finds nothing. Fields of other audits do not change.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', audit, 'archived')[1] or ''
local others = {}
for other, id in string.gmatch(held, '(%S+) (%S+)') do
  if other ~= name then
    others[#others + 1] = other .. ' ' .. id
  end
end
local gone = redis.call('HDEL', audit, name, 'totals:' .. name, 'acknowledged:' .. name)
if #others == 0 then
  redis.call('HDEL', audit, 'archived')
elseif table.concat(others, ' ') ~= held then
  redis.call('HSET', audit, 'archived', table.concat(others, ' '))
end
return { 'forgotten', gone > 0 and 1 or 0 }
