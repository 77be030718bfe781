-- include: entry
-- Take fields out of a group's state: what a person has acknowledged is not told any more.
--
-- KEYS  state
-- ARGV  uid, then fields
-- Returns  verdict: cleared, number of fields that were there
--          | not-owner | wrong-type key type | no-permission command key
-- Costs  linear in the fields.
-- Repeats safely: the second run finds none of them.

local state, uid = KEYS[1], ARGV[1]
local refusal = find_wrong_type(KEYS, { 'hash' }) or find_forbidden({ { 'HDEL', state, 'f' } })
if refusal then
  return refusal
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end
return { 'cleared', redis.call('HDEL', state, unpack(ARGV, 2)) }
