-- Stop acting on a group: take our record out of its state, and leave everything else.
--
-- KEYS  state
-- ARGV  uid
-- Returns  released | not-owner
-- Costs  constant.
-- Repeats safely: the second run finds another's record, or none, and changes nothing.

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  return 'not-owner'
end
if redis.call('HMGET', KEYS[1], 'owner:uid')[1] ~= ARGV[1] then
  return 'not-owner'
end
redis.call('HDEL', KEYS[1], 'owner:uid', 'owner:cluster', 'owner:namespace', 'owner:name',
  'owner:created_ms', 'owner:held_until_ms')
return 'released'
