-- include: entry
-- include: stream
-- include: adoption
-- include: body
-- include: ledger
-- Move undelivered copies from the retry stream to the end of the stream, a batch at a time, for a
-- group whose resource no longer uses a retry stream.
--
-- KEYS     retry, stream, ledger, state  (same slot)
-- ARGV     group, uid, prefix, batch: number, max_bytes: number, max_entry_bytes: number, actor, reason
-- READS    type retry stream ledger state; hget state; hmget state; xinfo|groups stream retry;
--          xinfo|stream stream retry; xpending retry; xrange retry
-- WRITES   xadd stream ledger; xdel retry; hset state; hdel state; hincrby state
-- USER     operator for recovery
-- Costs  linear in the batch, and in the bytes of the bodies read: max_bytes, but at least one entry.
--        XINFO GROUPS is linear in the groups.
-- Pending copies stay in the retry stream: a worker finishes them, or a scan recovers them.
-- Repeats safely: a moved copy is deleted from the retry stream. All refusals come before the first write.
-- Each new copy is written before the deletion. Redis keeps a script's effects together, so a crash leaves
-- all of them or none.

local refusal = find_refusal()
if refusal then
  return refusal
end
if redis.call('HGET', state, 'owner:uid') ~= uid then
  return { 'not-owner' }
end
refusal = find_obstacle(stream, group, false)
if refusal then
  return refusal
end
if redis.call('TYPE', retry).ok == 'none' then -- XINFO STREAM would read two bodies
  return { 'done', 0, 0, 0 }
end
if find_foreign(state, retry, group) then
  return { 'done', 0, 0, 0 }
end
local ours = see_group(retry, group)

-- One at a time, because their sizes are not known.
local found, bytes, from, is_end = {}, 0, '(' .. (ours and ours['last-delivered-id'] or '0-0'), false
while #found < batch and bytes < max_bytes do
  local entry = redis.call('XRANGE', retry, from, '+', 'COUNT', 1)[1]
  if not entry then
    is_end = true
    break
  end
  for _, part in ipairs(entry[2]) do
    bytes = bytes + #part
  end
  found[#found + 1] = entry
  from = '(' .. entry[1]
end

local names = {}
for i, entry in ipairs(found) do
  names[i] = 'try:' .. entry[1]
end
local tries = #names > 0 and redis.call('HMGET', state, unpack(names)) or {}

-- From here on it writes.
local moved, event, stayed, renamed = {}, {}, 0, {}
for _, entry in ipairs(found) do
  local id, fields = entry[1], entry[2]
  local root, retries, keep = read_marks(id, fields, prefix)
  local copy = { err = 'ERR too many fields, or too large' }
  if keep <= 7800 and size_of_body(fields) <= max_entry_bytes then
    fields[keep + 1], fields[keep + 2] = root_name, root
    fields[keep + 3], fields[keep + 4] = count_name, text(retries)
    copy = redis.pcall('XADD', stream, '*', unpack(fields))
  end
  if #moved == 0 and refuses_all(copy) then
    return copy
  end
  if type(copy) == 'string' then
    moved[#moved + 1] = id
    event[#event + 1] = id
    event[#event + 1] = ledger_entry(copy, root, text(retries), '0', '0')
    renamed[id] = copy
  else
    stayed = stayed + 1
  end
end

if #moved > 0 then
  redis.call('XDEL', retry, unpack(moved))
  -- Delete all before any is set: in two streams, entries of the same millisecond may have the same ID.
  for i, entry in ipairs(found) do
    if tries[i] and renamed[entry[1]] then
      redis.call('HDEL', state, names[i])
    end
  end
  for i, entry in ipairs(found) do
    if tries[i] and renamed[entry[1]] then
      redis.call('HSET', state, 'try:' .. renamed[entry[1]], tries[i])
    end
  end
  -- Suspects of the retry batch continue under their new IDs.
  local retry_batch = redis.call('HGET', state, 'chunk')
  if retry_batch then
    local changed = string.gsub(retry_batch, '%S+', renamed)
    if changed ~= retry_batch then
      redis.call('HSET', state, 'chunk', changed)
    end
  end
  redis.call('XADD', ledger, '*', unpack(ledger_event('requeued', {
    stream = retry, consumer = '', reason = reason, trigger = 'strategy-change', actor = actor,
    target = stream,
  }, event)))
  redis.pcall('HINCRBY', state, 'total:requeued', #moved)
end
return { 'done', #moved, stayed, is_end and 0 or 1 }
