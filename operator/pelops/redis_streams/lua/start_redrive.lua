-- include: entry
-- include: ids
-- include: stream
-- include: redrive
-- Start or continue a redrive, as the only one of its group that runs.
--
-- KEYS     source, state  (same slot)
-- ARGV     uid, redrive (uid of the StreamRedrive), name, known_until (the bound in its status, or '')
-- READS    type source state; time; hmget state; xinfo|stream source
-- WRITES   hset state
-- USER     operator
-- Costs  constant, and two bodies that XINFO STREAM reads.
-- Repeats safely: an existing record of the redrive stays. If two redrives start at once, one of them runs.

local refusal = find_refusal()
if refusal then
  return refusal
end
if is_not_owner(redis.call('HMGET', state, 'owner:uid')[1], uid) then
  return { 'not-owner' }
end
local now = server_ms()
local other, other_name = find_other_redrive(state, redrive, now)
if other then
  return { 'another-runs', other, other_name }
end
local record, changed = read_redrive(state, redrive), {}
if not record then
  local seen = see_stream(source)
  changed = {
    ['until'] = is_id(known_until) and known_until or (seen and seen['last-generated-id'] or '0-0'),
    cursor = '0-0',
    started_ms = text(now),
    requeued = redis.call('HMGET', state, 'total:requeued')[1] or '0',
  }
  record = { ['until'] = changed['until'], cursor = '0-0', started_ms = changed.started_ms, skipped = '', moved_ms = '' }
end
-- From here on it writes.
write_redrive(state, redrive, name, now, changed)
return { 'started', render_redrive(record, now) }
