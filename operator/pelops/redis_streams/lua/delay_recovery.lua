-- include: entry
-- include: ledger
-- Record that the position of a group went back, and delay the recovery of entries that were
-- delivered before that.
--
-- KEYS     ledger, state  (same slot)
-- ARGV     uid, old, new (its positions), seen_ms: number (when the old one was last observed; '' if
--          not known), hold_ms: number
-- READS    type ledger state; time; hmget state
-- WRITES   xadd ledger; hset state
-- USER     operator
-- Costs  constant.
-- Repeats safely: a caller whose last observation is older than the sticky condition reports the same
-- event. The ledger is written first: if the script ends after that, the next run records it again.

local refusal = find_refusal()
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
-- A time in the future was written before the clock was set back, and is ignored.
if since and hold_until and since <= now then
  local is_same = held[3] == old and held[4] == new and now < hold_until
  if is_same or (seen_ms and seen_ms <= since) then
    return { 'known', text(hold_until) }
  end
end

redis.call('XADD', ledger, '*', unpack(ledger_event('position-changed', {
  from = old, to = new, why = 'went-back',
})))
redis.call('HSET', state, 'back:since_ms', text(now), 'back:from', old, 'back:to', new,
  'back:hold_until_ms', text(now + hold_ms))
return { 'held', text(now + hold_ms) }
