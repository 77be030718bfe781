-- include: entry
-- include: ids
-- include: stream
-- include: own_letters
-- include: large
-- Begin a scan if one is due: record its start, and observe everything that it needs.
--
-- KEYS     stream, dead_letter, ledger, state, dead_letter_owner, [retry]  (same slot)
-- ARGV     group, uid, due_ms: number (no scan if the last one is more recent; 0: scan in any case),
--          is_former: flag (the resource no longer uses the retry stream, and copies go to the
--          stream)
-- READS    type stream dead_letter ledger state dead_letter_owner retry; time;
--          hmget state dead_letter_owner; hget state;
--          xinfo|stream stream retry; xinfo|groups stream retry; xpending stream retry;
--          xrange stream retry; [info]
-- WRITES   hset state; hdel state
-- USER     operator for recovery
-- Costs  linear in the groups of the stream and in the retry batch; all else is constant. It reads the first
--        and the last body of each stream. If entries of the retry batch may have been deleted before
--        delivery, it reads 256 KiB more, but at least one body.
-- Repeats safely: the second run observes the same. If the time of the scan or the identity of the master is
-- lost, the next scan comes earlier, or a failover is detected later.

local refusal = find_refusal()
if refusal then
  return refusal
end
local now = server_ms()
local held = redis.call('HMGET', state, 'owner:uid', 'sweep:at_ms', 'master:replid', 'master:since_ms',
  'chunk', 'back:hold_until_ms', 'back:since_ms', 'sweep:report', 'sweep:cursor',
  'offers:first', 'offers:last', 'large')
if is_not_owner(held[1], uid) then
  return { 'not-owner' }
end
local scanned_at = tonumber(held[2] or 0) or 0
-- A time in the future was written before the clock was set back, and is ignored.
if due_ms > 0 and scanned_at <= now and now - scanned_at < due_ms then
  return { 'not-due', text(scanned_at), text(now) }
end

if not dry_run and not owns_dead_letters(dead_letter_owner, stream, group) then
  return { 'letters-not-ours', dead_letter }
end

local function look(key)
  local seen = see_stream(key)
  local ours = seen and see_group(key, group)
  return seen, ours and {
    seen['groups'], ours['pending'], ours['consumers'], ours['last-delivered-id'],
    seen['last-generated-id'], seen['first-id'] or false, ours['lowest-pending'] or false,
  } or nil
end

local seen, main = look(stream)
if not main then
  return { 'no-group', stream }
end
local seen_there, second
if retry then
  seen_there, second = look(retry)
end
if retry and not second and not is_former then
  return { 'no-group', retry }
end

-- A copy is under way while it waits to be delivered or is pending. After that it is resolved. Copies of a
-- former strategy are in the other stream.
local bytes = 0
local function find_under_way(key, there, facts, id)
  local entry, at = look_in_time(function()
    return is_pending(key, group, id)
  end)
  if entry then
    local offered = string.match(redis.call('HGET', state, 'try:' .. id) or '', '^%d+ %d+ (%d+)')
    return { id, offered == text(at - entry[3]) and '' or entry[2] }
  end
  local waits, size = look_whether_it_waits(key, there, facts[4], id, MOST_BYTES - bytes)
  bytes = bytes + size
  return waits and { id, '' } or nil
end

local under_way = {}
for id in string.gmatch(held[5] or '', '%S+') do
  if is_id(id) then
    under_way[#under_way + 1] = find_under_way(stream, seen, main, id)
      or (second and find_under_way(retry, seen_there, second, id))
      or nil
  end
end

-- Keep the records of large entries only while these are pending.
local large, has_changed = parse_large(held[12]), false
for id in pairs(large) do
  if not is_pending(stream, group, id) and not (second and is_pending(retry, group, id)) then
    large[id], has_changed = nil, true
  end
end
if has_changed then
  write_large(state, large)
end

local info = redis.pcall('INFO', 'replication')
local replid = type(info) == 'string' and string.match(info, 'master_replid:(%w+)')
local since = held[4]
if replid and replid ~= held[3] then
  -- The first master that is recorded has no predecessor, so it counts from time 0.
  since = held[3] and text(now) or '0'
  redis.call('HSET', state, 'master:replid', replid, 'master:since_ms', since)
end
redis.call('HSET', state, 'sweep:at_ms', text(now))
return {
  'open', text(now), since, held[5] or '', under_way, held[6], held[7], held[8] or '', held[9] or '',
  math.max(0, (tonumber(held[11] or '') or 0) - (tonumber(held[10] or '') or 1) + 1), main, second or false,
}
