-- include: entry
-- include: stream
-- include: ledger
-- Remove a consumer without pending entries, and all data about it.
--
-- KEYS     stream, ledger, state, started, worker_state, others... (streams of the same group, whose entries the
--          consumer may own; same slot)
-- ARGV     group, uid, actor, consumer
-- READS    type stream ledger state started worker_state; hget state; xpending stream others; xinfo|groups stream
-- WRITES   xgroup|delconsumer stream; xadd ledger; hdel state started worker_state
-- USER     operator for recovery cleanup
-- RETURNS  removed | owns-entries | absent | not-owner
--          | wrong-type key, type | no-permission command, key
-- Costs  linear in the groups of the stream.
-- Repeats safely: the second run finds no such consumer. It is deleted only when nothing is pending
-- with it, in the same script: deleting one with pending entries would lose these permanently.

local refusal = find_refusal()
if refusal then
  return refusal
end
if is_not_owner(redis.call('HGET', state, 'owner:uid'), uid) then
  return { 'not-owner' }
end
local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
if pending.err then
  return { 'absent' }
end
if #pending > 0 then
  return { 'owns-entries' }
end
for _, other in ipairs(others) do
  -- What is remembered of it is needed for these.
  local owned = redis.pcall('XPENDING', other, group, '-', '+', 1, consumer)
  if not owned.err and #owned > 0 then
    return { 'owns-entries' }
  end
end
local function count_consumers()
  return see_group(stream, group)['consumers']
end

local before = count_consumers()
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
if count_consumers() == before then
  return { 'absent' } -- there was none of this name: nothing else tells, but the list of all
end
redis.call('HDEL', state, 'crowd:' .. consumer, 'pod:' .. consumer)
redis.call('HDEL', worker_state, 'boot:' .. consumer)
redis.call('HDEL', started, consumer)
redis.call('XADD', ledger, '*', unpack(ledger_event('consumer-removed', {
  stream = stream, consumer = consumer, actor = actor,
})))
return { 'removed' }
