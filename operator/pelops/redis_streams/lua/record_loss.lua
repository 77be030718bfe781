-- include: entry
-- include: loss
-- include: watch
-- Record that entries were removed from Redis before a group had finished them.
--
-- KEYS     ledger, state  (same slot)
-- ARGV     uid, position (last-delivered-id when the loss was found, or before the stream was lost),
--          at_least, at_most ('': no bound), after, before (the IDs between which the entries were;
--          before is '' if there is no end), pause_ms: number (minimum time between two records of one
--          growing gap), cause,
--          undelivered, pending, observed_ms (for any cause except `trimmed`; '': not known)
-- READS    type ledger state; time; hmget state
-- WRITES   xadd ledger; hset state
-- USER     operator
-- Costs  constant.
-- Repeats safely: a gap is identified by its position, and recorded again only after it has grown. An
-- acknowledged gap keeps its position and its numbers, so it is not reported again. A loss of another cause
-- is identified by its time: a caller that observed the group before it was recorded reports the same loss.

local loss = {
  position = position, at_least = at_least, at_most = at_most, after = after, before = before,
  cause = cause, undelivered = undelivered, pending = pending, observed_ms = observed_ms,
}

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'loss:position', 'loss:at_least', 'loss:at_most',
  'loss:seen_ms', 'loss:found_ms', 'loss:cause', 'watch')
if held[1] ~= uid then
  return { 'not-owner' }
end
local now = server_ms()
local function as_number(digits, otherwise)
  return tonumber(digits or '') or otherwise
end
if loss.cause ~= 'trimmed' then
  if is_recorded(held[6], loss.observed_ms, now) then
    return { 'known' }
  end
elseif held[2] == loss.position and (held[7] or 'trimmed') == 'trimmed' then
  local more = as_number(loss.at_least, 0) > as_number(held[3], 0)
    or as_number(loss.at_most, 0) > as_number(held[4], math.huge)
  local seen = as_number(held[5], 0)
  if not more or (seen <= now and now - seen < pause_ms) then
    return { 'known' }
  end
end

write_loss(ledger, state, now, loss)
-- When the group passes these IDs, the watch must not report the loss again.
local watch = read_watch(held[8])
if watch and loss.cause == 'trimmed' and loss.before ~= '' and not comes_before(watch['position'], loss.after) then
  watch['reported'] = last_of(watch['reported'], id_before(loss.before))
  write_watch(state, watch)
end
return { 'recorded' }
