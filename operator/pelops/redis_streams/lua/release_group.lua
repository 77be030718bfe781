-- Stop acting on a group: delete the ownership record from its state, and keep everything else.
--
-- KEYS     state, dead_letter_owner  (same slot)
-- ARGV     uid
-- READS    type state dead_letter_owner; hmget state dead_letter_owner
-- WRITES   hdel state dead_letter_owner
-- USER     operator
-- Costs  constant.
-- Repeats safely: the second run finds the record of another resource, or none, and changes nothing.

if redis.call('TYPE', state).ok ~= 'hash' then
  return { 'not-owner' }
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end
redis.call('HDEL', state, 'owner:uid', 'owner:cluster', 'owner:namespace', 'owner:name',
  'owner:created_ms', 'owner:held_until_ms')
if redis.call('TYPE', dead_letter_owner).ok == 'hash'
  and redis.call('HMGET', dead_letter_owner, 'uid')[1] == uid then
  -- The record still names the group of the dead letters, but no resource acts on them any longer.
  redis.call('HDEL', dead_letter_owner, 'held_until_ms')
end
return { 'released' }
