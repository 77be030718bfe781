-- include: entry
-- Write down that entries were trimmed before a group was given them.
--
-- KEYS  ledger, state  (same slot)
-- ARGV  uid, position (last-delivered-id at which it was found), at_least, at_most ('': no bound),
--       before (the first entry that is left, or ''), pause_ms (the least time between two records of
--       one growing gap)
-- Returns  verdict: recorded | known
--          | not-owner | wrong-type key type | no-permission command key
-- Costs  constant.
-- Repeats safely: a gap is known by its position and recorded again only when it has grown. An
-- acknowledged gap keeps its position and its numbers, so it is not told again. The ledger comes
-- first: dying after it, the next run tells it once more.

local ledger, state = unpack(KEYS)
local uid, position, at_least, at_most, before, pause_ms = unpack(ARGV)

local refusal = find_wrong_type(KEYS, { 'stream', 'hash' })
  or find_forbidden({ { 'XADD', ledger, '*', 'f', 'v' }, { 'HSET', state, 'f', 'v' } })
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'loss:position', 'loss:at_least', 'loss:at_most',
  'loss:seen_ms')
if held[1] ~= uid then
  return { 'not-owner' }
end
local now = server_ms()
local function as_number(digits, otherwise)
  return tonumber(digits or '') or otherwise
end
if held[2] == position then
  local more = as_number(at_least, 0) > as_number(held[3], 0)
    or as_number(at_most, 0) > as_number(held[4], math.huge)
  local seen = as_number(held[5], 0)
  if not more or (seen <= now and now - seen < tonumber(pause_ms)) then
    return { 'known' }
  end
end

redis.call('XADD', ledger, '*', 'kind', 'data-loss', 'at_least', at_least, 'at_most', at_most,
  'after', position, 'before', before)
redis.call('HSET', state, 'loss:at_least', at_least, 'loss:at_most', at_most, 'loss:position', position,
  'loss:seen_ms', text(now))
return { 'recorded' }
