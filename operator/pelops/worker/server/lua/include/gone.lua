-- include: dead_letter
-- include: worker_ledger
-- Entries whose body was deleted while they were pending.

-- Record these entries as dead letters without a body, acknowledge them, and add events to the worker
-- ledger. `entries` are as XPENDING returns them. Returns the recorded IDs, or the error if the first one
-- was refused.
local function record_gone(keys, names, entries, now)
  local source, dead_letter, ledger = keys.source, keys.dead_letter, keys.ledger
  local acked, by_owner = {}, {}
  for _, entry in ipairs(entries) do
    local id, owner = entry[1], entry[2]
    local letter = add_dead_letter(dead_letter, id, {}, 0, names.prefix, {
      stream = source, group = names.group, consumer = owner, deliveries = entry[4], retries = 0,
      reason = 'PayloadGone', error = 'the entry was deleted or trimmed before it was acknowledged',
      delivered_ms = now - entry[3], now_ms = now,
    })
    if type(letter) ~= 'string' then
      if #acked == 0 then
        return letter
      end
      break
    end
    acked[#acked + 1] = id
    local event = by_owner[owner] or {}
    event[#event + 1] = id
    event[#event + 1] = ledger_entry(letter, id, '0', text(entry[4]), text(entry[3]))
    by_owner[owner] = event
  end
  if #acked > 0 then
    redis.call('XACK', source, names.group, unpack(acked))
    for owner, event in pairs(by_owner) do
      add_worker_event(ledger, ledger_event('payload-gone', {
        stream = source, consumer = owner, reason = 'PayloadGone', trigger = names.trigger,
        actor = names.me,
      }, event))
    end
  end
  return acked
end
