-- include: entry
-- include: stream
-- include: ahead
-- Destroy a consumer group and its own keys, if the caller is the one who acts on it.
--
-- KEYS     stream, state, started, retry, offer_stream, ledger, audit, worker_state, worker_ledger
--          (same slot)
-- ARGV     group, uid
-- READS    type stream state retry; hmget state; xpending stream retry; xinfo|stream retry;
--          xinfo|groups retry; xrange retry
-- WRITES   xgroup|destroy stream; unlink state started retry offer_stream ledger
--          audit worker_state worker_ledger
-- USER     operator for delete-policy
-- RETURNS  destroyed copies (in the retry stream that were not acknowledged, at least)
--          | absent
--          | not-owner uid, cluster, namespace, name, created_ms, held_until_ms (each or false)
--          | no-permission command, key
-- Costs  linear in the pending entries of the group, which Redis frees before it answers, and in at
--        most 500 entries or 500 KB of the retry stream.
-- Repeats safely: the second run finds neither group nor record and answers absent. The stream and
-- its dead letters stay. Dying before the last line leaves the record, and the next run goes on.

local refusal = find_missing_right()
if refusal then
  return refusal
end

local function group_exists()
  if redis.call('TYPE', stream).ok ~= 'stream' then
    return false
  end
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1)
  return not (pending.err and string.find(pending.err, 'NOGROUP', 1, true))
end

local held = {}
if redis.call('TYPE', state).ok == 'hash' then
  held = redis.call('HMGET', state, 'owner:uid', 'owner:cluster', 'owner:namespace',
    'owner:name', 'owner:created_ms', 'owner:held_until_ms')
end

if held[1] ~= uid then
  if not held[1] and not group_exists() then
    return { 'absent' }
  end
  return { 'not-owner', held[1] or false, held[2] or false, held[3] or false, held[4] or false,
    held[5] or false, held[6] or false }
end

local function count_left()
  local seen = see_stream(retry)
  local ours = seen and see_group(retry, group)
  if not ours then
    return seen and seen['length'] or 0
  end
  return ours['pending'] + (count_ahead(retry, seen, ours['last-delivered-id'], DEEP, DEEP * 1024) or 0)
end

local left = count_left()
if group_exists() then
  redis.call('XGROUP', 'DESTROY', stream, group)
end
redis.call('UNLINK', started, retry, offer_stream, ledger, audit, worker_state, worker_ledger)
redis.call('UNLINK', state)
return { 'destroyed', left }
