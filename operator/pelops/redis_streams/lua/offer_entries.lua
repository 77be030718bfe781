-- include: entry
-- include: retry_batch
-- include: offer
-- include: ledger
-- Offer entries of a dead owner to workers that claim. The entries keep their IDs and their place.
--
-- KEYS     source, offer_stream, ledger, state  (same slot)
-- ARGV     group, uid, actor, trigger, owner, cutoff_ms: number, retry_batch, kept, resolved,
--          co_failed_ms (as in settle_suspects), reason,
--          pause_ms: number (until the offer may be repeated),
--          items{id, action, retries, alone}... (action is retry or free)
-- READS    type source offer_stream ledger state; time; hmget state; hget state; xpending source
-- WRITES   [xnack source for release]; xadd offer_stream ledger; hset state; hdel state
-- USER     operator for recovery
-- Verdicts of entries: not-pending other-owner too-young offered
-- Costs  linear in the items; reads no body. The claim skips an entry whose body was deleted, and the
--        next scan records it.
-- On a server with XNACK, that command gives the entries back to the group. On other servers, an entry of
-- the offer stream names the owner, the IDs and the cutoff. The worker that reads it claims those entries
-- that the owner has held since before the cutoff. Without the cutoff, it would take entries from a process
-- that has started again under the owner's name and has read its history.
-- An offered entry counts as recovered when a worker takes it: review_offers counts that. It repeats
-- offers that no worker took, from the record that this script writes of each offer.
-- Repeats safely: an entry is offered, counted as failed and recorded in the ledger once for each
-- delivery. Redis keeps a script's effects together: all of them, or none.

local refusal = find_refusal()
if refusal then
  return refusal
end
refusal = find_stale(state, uid, retry_batch)
if refusal then
  return refusal
end

local now, stays, offers, records, events, members = server_ms(), {}, {}, {}, {}, {}
local asked = {}
-- Whether this delivery has been offered already, by another replica for example.
local function is_offered(id, delivered)
  local tried = redis.call('HGET', state, 'try:' .. id)
  return string.match(tried or '', '^%d+ %d+ (%d+) offered$') == text(delivered)
end

for _, item in ipairs(items) do
  local id, entry, at = item.id, nil, nil
  entry, at = look_in_time(function()
    return is_pending(source, group, id)
  end)
  if not entry or asked[id] then
    stays[#stays + 1] = { id, 'not-pending' }
  elseif entry[2] ~= owner then
    stays[#stays + 1] = { id, 'other-owner' }
  elseif at - entry[3] >= cutoff_ms then
    stays[#stays + 1] = { id, 'too-young' }
  elseif is_offered(id, at - entry[3]) then
    stays[#stays + 1] = { id, 'offered' }
  else
    offers[#offers + 1] = id
    records[#records + 1] = 'try:' .. id
    records[#records + 1] = item.retries .. ' ' .. item.alone .. ' ' .. text(at - entry[3]) .. ' offered'
    events[#events + 1] = id
    events[#events + 1] = ledger_entry('-', id, item.retries, text(entry[4]), text(entry[3]))
    if item.action == 'retry' then
      members[#members + 1] = id
    end
  end
  asked[id] = true
end

-- From here on it writes.
if #offers > 0 then
  local before, announced = math.min(cutoff_ms, now + 1), '-'
  local given = redis.pcall('XNACK', source, group, 'FAIL', 'IDS', #offers, unpack(offers))
  if type(given) == 'table' and given.err then
    announced = announce(offer_stream, owner, before, offers)
    if type(announced) ~= 'string' then
      return announced
    end
  end
  write_offer(state, {
    first = now, due = now + pause_ms, times = 1, before = before, trigger = trigger,
    announced = announced, ids = offers, owner = announced == '-' and '' or owner,
  })
  redis.call('HSET', state, unpack(records))
  redis.call('XADD', ledger, '*', unpack(ledger_event('released', {
    stream = source, consumer = owner, reason = reason, trigger = trigger, actor = actor,
  }, events)))
end

local after = write_retry_batch(state, retry_batch, kept, resolved, members)
write_co_failed(state, owner, co_failed_ms)
return { 'done', text(now), #offers, 0, stays, after }
