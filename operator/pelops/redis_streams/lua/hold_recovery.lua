-- include: entry
-- Write down that a group went back, and that what was delivered before is not to be recovered for a while.
--
-- KEYS  ledger, state  (same slot)
-- ARGV  uid, from, to, seen_ms (when it was last seen at `from`; '' when that is not known), hold_ms
-- Returns  verdict, then
--            held     hold_until_ms
--            known    hold_until_ms; another look has told it already, and the hold stays as it is
--            not-owner | wrong-type key type | no-permission command key
-- Costs  constant.
-- Repeats safely: who last saw the group before the latch was written tells of the same event. The
-- ledger comes first: dying after it, the next run tells it once more.

local ledger, state = unpack(KEYS)
local uid, from, to, seen_ms, hold_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local refusal = find_wrong_type(KEYS, { 'stream', 'hash' })
  or find_forbidden({ { 'XADD', ledger, '*', 'f', 'v' }, { 'HSET', state, 'f', 'v' } })
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'back:since_ms', 'back:from', 'back:to',
  'back:hold_until_ms')
if held[1] ~= uid then
  return { 'not-owner' }
end
local now = server_ms()
local function as_ms(digits)
  return string.match(digits or '', '^%d+$') and #digits <= 15 and tonumber(digits) or nil
end
local since, hold_until = as_ms(held[2]), as_ms(held[5])
-- A time in the future was written before the clock went back, and counts as none.
if since and hold_until and since <= now then
  local is_same = held[3] == from and held[4] == to and now < hold_until
  if is_same or (seen_ms and seen_ms <= since) then
    return { 'known', text(hold_until) }
  end
end

redis.call('XADD', ledger, '*', 'kind', 'position-changed', 'from', from, 'to', to, 'why', 'went-back')
redis.call('HSET', state, 'back:since_ms', text(now), 'back:from', from, 'back:to', to,
  'back:hold_until_ms', text(now + hold_ms))
return { 'held', text(now + hold_ms) }
