-- Stop acting on a group: take our record out of its state, and leave everything else.
--
-- KEYS  state
-- ARGV  uid, cluster
-- Returns  released | not-owner
-- Costs  constant.
-- Repeats safely: the second run finds another's record, or none, and changes nothing.

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  return 'not-owner'
end
local held = redis.call('HMGET', KEYS[1], 'owner:uid', 'owner:cluster')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return 'not-owner'
end
redis.call('HDEL', KEYS[1], 'owner:uid', 'owner:cluster', 'owner:namespace', 'owner:name',
  'owner:created_ms', 'owner:held_until_ms')
return 'released'
