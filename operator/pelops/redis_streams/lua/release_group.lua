-- Stop acting on a group: take our record out of its state, and leave everything else.
--
-- KEYS     state
-- ARGV     uid
-- READS    type state; hmget state
-- WRITES   hdel state
-- USER     operator
-- RETURNS  released | not-owner
-- Costs  constant.
-- Repeats safely: the second run finds another's record, or none, and changes nothing.

if redis.call('TYPE', state).ok ~= 'hash' then
  return 'not-owner'
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return 'not-owner'
end
redis.call('HDEL', state, 'owner:uid', 'owner:cluster', 'owner:namespace', 'owner:name',
  'owner:created_ms', 'owner:held_until_ms')
return 'released'
