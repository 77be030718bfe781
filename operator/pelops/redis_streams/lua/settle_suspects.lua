-- include: entry
-- include: dead_letter
-- include: retry_batch
-- include: large
-- include: ledger
-- Apply decisions about suspects, which are entries that failed before: copy them for another attempt,
-- or make them dead letters.
--
-- KEYS     source, target, dead_letter, ledger, state, locks... (one for each item, or none; same
--          slot)
-- ARGV     group, uid, prefix, max_entry_bytes: number, actor, trigger, allows_others: flag, owner, cutoff_ms: number,
--          retry_batch (the state's retry batch as the caller read it; if it has changed since, the
--          decisions are outdated),
--          kept (IDs of the retry batch that are not resolved yet, separated by spaces),
--          resolved (IDs of the retry batch whose records are no longer needed),
--          co_failed_ms (entries of this owner delivered before this time failed together; 0: none),
--          items{id, action, retries, alone, reason, error}...
-- READS    type source target dead_letter ledger state; time; hmget state; hget state; xinfo|groups
--          target; xinfo|stream target; xpending source; xrange source; exists locks for locks
-- WRITES   xadd target dead_letter ledger; xack source; hset state; hdel state; [hincrby state]
-- USER     operator for recovery
-- action  retry  copied, and added to the retry batch
--         free   copied, and not added to the retry batch
--         dead   made a dead letter
-- Verdicts of entries: not-pending other-owner too-young locked too-wide too-large gone refused
--           next-batch
-- Costs  linear in the items, and in the bytes of the bodies read: 256 KiB, but at least one body. The
--        remaining items are returned as next-batch.
-- Repeats safely: a settled entry is no longer pending, and the retry batch has changed. All refusals come
-- before the first write. Redis keeps a script's effects together: all of them, or none.

local refusal = find_refusal()
if refusal then
  return refusal
end
refusal = find_stale(state, uid, retry_batch)
if refusal then
  return refusal
end
local copies = false
for _, item in ipairs(items) do
  copies = copies or item.action ~= 'dead'
end
if copies then
  refusal = find_obstacle(target, group, allows_others)
  if refusal then
    return refusal
  end
end

local now, plan, stays, asked = server_ms(), {}, {}, {}
local bytes, large, has_new_large = 0, parse_large(redis.call('HMGET', state, 'large')[1]), false
for i, item in ipairs(items) do
  local id, entry, at = item.id, nil, nil
  entry, at = look_in_time(function()
    return is_pending(source, group, id)
  end)
  local lock = locks[i]
  if not entry or asked[id] then
    stays[#stays + 1] = { id, 'not-pending' }
  elseif entry[2] ~= owner then
    stays[#stays + 1] = { id, 'other-owner' }
  elseif at - entry[3] >= cutoff_ms then
    stays[#stays + 1] = { id, 'too-young' }
  elseif lock and redis.call('EXISTS', lock) == 1 then
    stays[#stays + 1] = { id, 'locked' }
  elseif (large[id] or 0) > max_entry_bytes then
    stays[#stays + 1] = { id, 'too-large' }
  elseif bytes > MOST_BYTES then
    stays[#stays + 1] = { id, 'next-batch' }
  else
    local found = redis.call('XRANGE', source, id, id)[1]
    local size = size_of_body(found and found[2] or {})
    bytes = bytes + size
    local root, _, keep = read_marks(id, found and found[2] or {}, prefix)
    if not found then
      stays[#stays + 1] = { id, 'gone' }
    elseif size > max_entry_bytes then
      stays[#stays + 1] = { id, 'too-large' }
      large[id], has_new_large = size, true
    elseif keep > 2 * WIDEST then
      stays[#stays + 1] = { id, 'too-wide' }
    else
      plan[#plan + 1] = { entry, found[2], root, keep, item, at }
    end
  end
  asked[id] = true
end

-- From here on it writes.
if has_new_large then
  write_large(state, large)
end
local acked, forgotten, members = {}, {}, {}
local requeued, buried = {}, {}
for _, one in ipairs(plan) do
  local entry, fields, root, keep, item = one[1], one[2], one[3], one[4], one[5]
  local action, retries, alone = item.action, item.retries, item.alone
  local added, events
  if action == 'dead' then
    added = add_dead_letter(dead_letter, root, fields, keep, prefix, {
      stream = source, group = group, consumer = owner, deliveries = entry[4],
      retries = tonumber(retries), reason = item.reason, error = item.error,
      delivered_ms = one[6] - entry[3], now_ms = now,
    })
    events = buried
  else
    fields[keep + 1], fields[keep + 2] = prefix .. 'original_id', root
    fields[keep + 3], fields[keep + 4] = prefix .. 'retry_count', retries
    added = redis.pcall('XADD', target, '*', unpack(fields))
    events = requeued
  end
  if #acked == 0 and refuses_all(added) then
    return added
  end
  if type(added) ~= 'string' then
    stays[#stays + 1] = { entry[1], 'refused' }
  else
    acked[#acked + 1] = entry[1]
    forgotten[#forgotten + 1] = 'try:' .. entry[1]
    events[#events + 1] = entry[1]
    events[#events + 1] = ledger_entry(added, root, retries, text(entry[4]), text(entry[3]))
    if action ~= 'dead' then
      redis.call('HSET', state, 'try:' .. added, retries .. ' ' .. alone .. ' 0')
    end
    if action == 'retry' then
      members[#members + 1] = added
    end
  end
end

if #acked > 0 then
  redis.call('XACK', source, group, unpack(acked))
  redis.call('HDEL', state, unpack(forgotten))
end
local function record(kind, pairs_of, total, why, to)
  if #pairs_of > 0 then
    redis.call('XADD', ledger, '*', unpack(ledger_event(kind, {
      stream = source, consumer = owner, reason = why, trigger = trigger, actor = actor, target = to,
    }, pairs_of)))
    redis.pcall('HINCRBY', state, total, #pairs_of / 2)
  end
end
record('requeued', requeued, 'total:requeued', 'tried again after a failure', target)
record('dead-lettered', buried, 'total:dead_lettered', items[1] and items[1].reason, dead_letter)

local after = write_retry_batch(state, retry_batch, kept, resolved, members)
write_co_failed(state, owner, co_failed_ms)
return { 'done', text(now), #requeued / 2, #buried / 2, stays, after }
