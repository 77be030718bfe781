-- include: entry
-- include: dead_letter
-- include: gone
-- include: worker_ledger
-- Make a dead letter of an entry that its worker rejects.
--
-- KEYS     source, dead_letter, worker_ledger, worker_state  (same slot)
-- ARGV     group, me, prefix, trigger, reason, why, id
-- READS    type source dead_letter worker_ledger worker_state; time; xpending source; xrange source
-- WRITES   xadd dead_letter worker_ledger; xack source; [hdel worker_state]
-- USER     sdk-worker
-- Costs  linear in the entry's body.
-- Repeats safely: the worker no longer holds a rejected entry. The dead letter is added before the
-- acknowledgement.

local refusal = find_refusal()
if refusal then
  return refusal
end
local entry, now = look_in_time(function()
  return is_pending(source, group, id)
end)
if not entry or entry[2] ~= me then
  return { 'not-ours' }
end
local found = redis.call('XRANGE', source, id, id)[1]
if not found then
  local recorded = record_gone(
    { source = source, dead_letter = dead_letter, ledger = worker_ledger },
    { group = group, me = me, prefix = prefix, trigger = trigger }, { entry }, now
  )
  return recorded.err and recorded or { 'gone' }
end
local root, retries, keep = read_marks(id, found[2], prefix)
if keep > 2 * WIDEST then
  return { 'too-wide' }
end

-- From here on it writes.
local letter = add_dead_letter(dead_letter, root, found[2], keep, prefix, {
  stream = source, group = group, consumer = me, deliveries = entry[4], retries = retries,
  reason = reason, error = why, delivered_ms = now - entry[3], now_ms = now,
})
if type(letter) ~= 'string' then
  return letter
end
redis.call('XACK', source, group, id)
add_worker_event(worker_ledger, ledger_event('dead-lettered', {
  stream = source, consumer = me, reason = reason, trigger = trigger, actor = me,
}, { id, ledger_entry(letter, root, text(retries), text(entry[4]), text(entry[3])) }))
redis.pcall('HDEL', worker_state, 'alone:' .. id)
return { 'rejected' }
