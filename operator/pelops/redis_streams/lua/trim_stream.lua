-- include: entry
-- include: ids
-- include: stream
-- include: trim
-- include: adoption
-- include: ledger
-- include: watch
-- Trim a stream to its limits, and keep every entry that a group has not acknowledged.
--
-- KEYS     source, ledger, state  (same slot; the last two of the group that asks for the trim)
-- ARGV     uid, group, max_length: number ('': no limit), max_age_ms: number ('': no limit),
--          batch: number (entries to remove at most), is_derived: flag (the source is a stream that
--          Pelops keeps for the group; if not set, spec.retention asks for the trim)
-- READS    type source ledger state; time; hmget state; xinfo|stream source;
--          xinfo|groups source; xpending source
-- WRITES   xtrim source; xadd ledger; hset state; hincrby state
-- USER     operator for retention recovery
-- Costs  XINFO GROUPS, and XPENDING for each group that has pending entries, until a group needs the first
--        entry. The removal is linear in the entries removed: about 100 nodes of the stream for each
--        limit. It reads the first and the last body, twice.
-- A stream without a group is not trimmed, because it is not known which entries are needed. An entry is
-- removed if it exceeds one of two limits. Whole nodes of the stream are removed, so a few more entries
-- stay. With a length of 0, every entry that no group needs is removed.
-- Repeats safely: one script determines what the groups need and removes the rest, so no group can be
-- created in between. The trim comes before its ledger event: Redis keeps a script's effects together.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'trim:at_ms', 'watch')
if held[1] ~= uid then
  return { 'not-owner' }
end
if is_derived and find_foreign(state, source, group) then
  return { 'done', 0, '', '', 0 }
end
local seen = see_stream(source)
local first = seen and seen['first-id']
if not first or seen['groups'] == 0 then
  return { 'done', 0, '', first or '', 0 }
end

local now = server_ms()
local excess = max_length and seen['length'] - max_length or 0
local oldest = max_age_ms and text(math.max(0, now - max_age_ms)) .. '-0'
local is_old = oldest and comes_before(first, oldest)
if excess < 1 and not is_old then
  return { 'done', 0, '', first, 0 }
end

-- To read n groups takes 0.015 ms for each, and each group may have a resource that asks for it. A pause of
-- 0.15 ms times n squared limits all of them together to a tenth of the server's time. The policy plans by
-- the same rule.
local is_wide, looked_at = seen['groups'] > 100, tonumber(held[2] or '') or 0
if is_wide and looked_at <= now and now - looked_at < 0.15 * seen['groups'] * seen['groups'] then
  return { 'not-due' }
end

-- The lowest ID that any group needs, or any needed ID up to the first entry: then nothing can be removed.
local function find_need()
  local need
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', source)) do
    local group = pairs_of(reply)
    local needs = group['last-delivered-id']
    if group['pending'] > 0 then
      local lowest = redis.call('XPENDING', source, group['name'], '-', '+', 1)[1]
      needs = lowest and first_of(needs, lowest[1]) or needs
    end
    need = need and first_of(need, needs) or needs
    if not comes_before(first, need) then
      return need
    end
  end
  return need
end
local need = find_need()

-- From here on it writes.
local removed = 0
if comes_before(first, need) then
  removed = trim_below(source, seen, need, math.min(excess, batch), max_length == 0)
  if is_old then
    removed = removed + trim_below(source, seen, first_of(need, oldest), batch - removed)
  end
end
if is_wide or removed == 0 then
  -- Another attempt at once would cost too much, or remove nothing.
  redis.call('HSET', state, 'trim:at_ms', text(now))
end
if removed == 0 then
  return { 'done', 0, need, first, 0 }
end
first = see_stream(source)['first-id'] or ''
redis.call('XADD', ledger, '*', unpack(ledger_event('trimmed', {
  stream = source, count = text(removed), below = need, first_id_after = first,
})))
redis.call('HINCRBY', state, 'total:trimmed', removed)
local watch = not is_derived and read_watch(held[3])
if watch then
  -- No group needs the removed entries, so the next observation must not count them.
  watch['removed'], watch['first'] = watch['removed'] + removed, first ~= '' and first or nil
  write_watch(state, watch)
end
return { 'done', removed, need, first, 1 }
