-- include: entry
-- include: ids
-- include: stream
-- include: chunk
-- include: body
-- Write down what a sweep found, and forget what need not be remembered any more.
--
-- KEYS  stream, state, then other streams of the group to which copies went before  (same slot; the
--       first is the one to which they go)
-- ARGV  group, uid,
--       resolved   the chunk as it was seen, when nothing of it is under way: it is forgotten, unless
--                  another one was written meanwhile. Empty: it stays
--       scan       where to look for tries to forget; empty: nowhere
--       then (field, value) ... of the sweep, and of what was learnt about consumers
-- Returns  verdict: done, next scan | not-owner | wrong-type key type | no-permission command key
-- Costs  linear in the fields given, and in 100 fields of the state when it scans. Of bodies it reads
--        what look_whether_it_waits does, 256 KiB, though always one.
-- Repeats safely: the same words are written again.

local stream, state = KEYS[1], KEYS[2]
local group, uid, resolved, scan = unpack(ARGV, 1, 4)
local refusal = find_wrong_type(KEYS, { 'stream', 'hash' })
  or find_forbidden({ { 'HSET', state, 'f', 'v' }, { 'HDEL', state, 'f' } })
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'chunk')
if held[1] ~= uid then
  return { 'not-owner' }
end
for i = 5, #ARGV, 2 do
  if redis.call('HGET', state, ARGV[i]) ~= ARGV[i + 1] then
    redis.call('HSET', state, ARGV[i], ARGV[i + 1])
  end
end
if resolved ~= '' and held[2] == resolved then
  write_chunk(state, resolved, '', resolved, {})
end
local next_scan = '0'
if scan ~= '' then
  local found = redis.call('HSCAN', state, scan, 'MATCH', 'try:*', 'COUNT', 100)
  local streams, bytes = { [stream] = 0 }, 0
  for i = 3, #KEYS do
    streams[KEYS[i]] = 0
  end
  for key in pairs(streams) do
    local seen = #found[2] > 0 and see_stream(key)
    streams[key] = seen and { seen = seen, ours = see_group(key, group) }
  end
  -- Whether an entry is pending, or waits to be delivered; nobody else is remembered.
  local function is_under_way(id)
    for key, facts in pairs(streams) do
      if facts and facts.ours and is_pending(key, group, id) then
        return true
      end
      local position = facts and facts.ours and facts.ours['last-delivered-id'] or '0-0'
      local waits, size = false, 0
      if facts then
        waits, size = look_whether_it_waits(key, facts.seen, position, id, MOST_BYTES - bytes)
      end
      bytes = bytes + size
      if waits then
        return true
      end
    end
    return false
  end
  next_scan = found[1]
  for i = 1, #found[2], 2 do
    local id = string.sub(found[2][i], 5)
    if not is_id(id) then
      redis.call('HDEL', state, found[2][i])
    elseif not is_under_way(id) then
      redis.call('HDEL', state, found[2][i])
    end
  end
end
return { 'done', next_scan }
