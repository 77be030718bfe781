-- include: entry
-- include: ids
-- include: stream
-- include: retry_batch
-- include: body
-- Store the result of a scan, and remove attempt counters of finished entries and data about deleted
-- consumers.
--
-- KEYS     stream, state, others... (streams of the group to which copies went formerly; same slot.
--          The first key is the one to which they go now)
-- ARGV     group, uid,
--          resolved (the retry batch as the caller read it, if none of it is under way: it is
--          deleted unless it has changed since. Empty: it stays),
--          tries_cursor (where to continue the search for obsolete fields; empty: no search),
--          fields{name, value}... (results of the scan, and data about consumers)
-- READS    type stream state others; hmget state; hget state; hscan state; xinfo|stream stream
--          others; xinfo|groups stream others; xinfo|consumers stream others; xpending stream others; xrange stream others
-- WRITES   hset state; hdel state
-- USER     operator for recovery
-- Costs  linear in the fields given. With a cursor, also in 100 fields of the state and 500 consumers, and in
--        the bodies that look_whether_it_waits reads: 256 KiB, but at least one body.
-- Repeats safely: the same values are written again.

local MOST_CONSUMERS = 500

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'chunk')
if is_not_owner(held[1], uid) then
  return { 'not-owner' }
end
for _, field in ipairs(fields) do
  if redis.call('HGET', state, field.name) ~= field.value then
    redis.call('HSET', state, field.name, field.value)
  end
end
if resolved ~= '' and held[2] == resolved then
  write_retry_batch(state, resolved, '', resolved, {})
end
local next_scan = '0'
if tries_cursor ~= '' then
  local found = redis.call('HSCAN', state, tries_cursor, 'COUNT', 100)
  local streams, bytes = { [stream] = 0 }, 0
  for _, key in ipairs(others) do
    streams[key] = 0
  end
  for key in pairs(streams) do
    local seen = #found[2] > 0 and see_stream(key)
    streams[key] = seen and { seen = seen, ours = see_group(key, group) }
  end
  -- Whether an entry is pending, or waits to be delivered. The records of all others are deleted.
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
  -- Whether a consumer exists, or there are too many consumers to check it at a bounded cost.
  local known
  local function is_consumer(name)
    if not known then
      known = {}
      for key, facts in pairs(streams) do
        local ours = facts and facts.ours
        if ours and ours['consumers'] > MOST_CONSUMERS then
          known.are_many = true
        elseif ours then
          for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
            known[' ' .. pairs_of(consumer)['name']] = true
          end
        end
      end
    end
    return known.are_many or known[' ' .. name]
  end
  next_scan = found[1]
  for i = 1, #found[2], 2 do
    local kind, name = string.match(found[2][i], '^(%l+):(.*)$')
    if kind == 'try' and not (is_id(name) and is_under_way(name)) then
      redis.call('HDEL', state, found[2][i])
    elseif (kind == 'pod' or kind == 'crowd') and not is_consumer(name) then
      redis.call('HDEL', state, found[2][i]) -- a worker that removes itself may not write to the state
    end
  end
end
return { 'done', next_scan }
