-- include: entry
-- Delete from a group's state the fields of sticky conditions that a user has acknowledged.
--
-- KEYS     state
-- ARGV     uid, fields...
-- READS    type state; hmget state
-- WRITES   hdel state
-- USER     operator
-- Costs  linear in the fields.
-- Repeats safely: the second run finds none of them.

local refusal = find_refusal()
if refusal then
  return refusal
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end
return { 'cleared', redis.call('HDEL', state, unpack(fields)) }
