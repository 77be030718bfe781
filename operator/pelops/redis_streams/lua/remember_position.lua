-- include: entry
-- include: ids
-- include: stream
-- include: ledger
-- include: watch
-- Record the position of a group and the counters of its stream, so that a lost group can be created
-- again. Find whether the group passed entries that were removed since the last record.
--
-- KEYS     stream, ledger, state  (same slot)
-- ARGV     group, uid, checkpoint_ms: number (minimum time between two checkpoints in the ledger),
--          pause_ms: number (minimum time between two records of a possible loss)
-- READS    type stream ledger state; time; hmget state; xinfo|stream stream; xinfo|groups stream;
--          xpending stream; [info]
-- WRITES   xadd ledger; hset state
-- USER     operator
-- Costs  XINFO GROUPS is linear in the groups of the stream; all else is constant.
-- The script reads everything that it writes at one instant: a group created again from a position without
-- the lowest pending entry of the same instant would lose entries.
-- Repeats safely: unchanged values are not written again. The checkpoint is written first: if the script ends
-- after it, the state keeps an older position, from which more entries are delivered again.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'seen:last_delivered', 'seen:lowest_pending',
  'seen:at_ms', 'bookmark:at_ms', 'seen:entries_added', 'seen:last_generated', 'seen:pending',
  'watch')
if held[1] ~= uid then
  return { 'not-owner' }
end
local seen = see_stream(stream)
local ours = seen and see_group(stream, group)
if not ours then
  return { 'no-group', stream }
end

local now = server_ms()
local lowest = ours['lowest-pending'] or ''
local function as_number(digits)
  return string.match(digits or '', '^%d+$') and #digits <= 19 and tonumber(digits) or nil
end
-- Damaged values are read as nil, and written again.
local known = read_watch(held[9])
local is_new = not known or held[2] ~= ours['last-delivered-id'] or held[3] ~= lowest
  or not (as_number(held[4]) and as_number(held[6]) and is_id(held[7]))
  or held[6] ~= text(seen['entries-added']) or held[8] ~= text(ours['pending'])
local seen_at, marked_at = as_number(held[4]) or 0, as_number(held[5]) or 0
-- A time in the future was written before the clock was set back, and is ignored.
local is_due = marked_at == 0 or marked_at > now or now - marked_at >= checkpoint_ms
local marks = is_due and (is_new or marked_at == 0 or marked_at > now or seen_at > marked_at)
if not is_new and not marks then
  return { 'unchanged' }
end

local info = redis.pcall('INFO', 'replication')
local replid = type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or nil
local watch = compare_watch(known, seen, ours['last-delivered-id'], replid)

-- From here on it writes.
local gap = record_gap(ledger, watch, now, pause_ms, marks)
if marks then
  redis.call('XADD', ledger, '*', unpack(ledger_event('bookmark', {
    stream = stream, entries_added = text(seen['entries-added']),
    last_generated = seen['last-generated-id'], last_delivered = ours['last-delivered-id'],
    lowest_pending = lowest, length = text(seen['length']), pending = text(ours['pending']),
    first_id = seen['first-id'] or '', watched_from = watch['from'],
  })))
  redis.call('HSET', state, 'bookmark:at_ms', text(now))
end
if is_new then
  -- The server's lag, if it can be true: at least so many entries are undelivered.
  local lag = ours['lag']
  local is_likely = lag and lag >= 0 and lag <= seen['length']
  redis.call('HSET', state, 'seen:last_delivered', ours['last-delivered-id'],
    'seen:lowest_pending', lowest, 'seen:entries_added', text(seen['entries-added']),
    'seen:last_generated', seen['last-generated-id'], 'seen:at_ms', text(now),
    'seen:replid', replid or '', 'seen:pending', text(ours['pending']),
    'seen:undelivered', is_likely and text(lag) or '')
end
write_watch(state, watch)
gap = gap or { after = '', before = '', at_most = '' }
return { 'remembered', marks and 1 or 0, gap.after, gap.before, gap.at_most }
