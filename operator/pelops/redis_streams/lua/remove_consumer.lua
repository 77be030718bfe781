-- include: entry
-- include: stream
-- include: ledger
-- Remove a consumer without pending entries, and all data about it.
--
-- KEYS     stream, ledger, state, started, worker_state, others... (other streams of the group, in which the
--          consumer may own entries; same slot)
-- ARGV     group, uid, actor, consumer
-- READS    type stream ledger state started worker_state; hget state; xpending stream others; xinfo|groups stream
-- WRITES   xgroup|delconsumer stream; xadd ledger; hdel state started worker_state
-- USER     operator for recovery cleanup
-- Costs  linear in the groups of the stream.
-- Repeats safely: the second run finds no such consumer. One script checks the consumer and deletes it,
-- because entries that were delivered in between would be lost permanently.

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
  -- The data about the consumer is needed to recover these.
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
  return { 'absent' } -- it did not exist: the reply of DELCONSUMER does not show that
end
redis.call('HDEL', state, 'crowd:' .. consumer, 'pod:' .. consumer)
redis.call('HDEL', worker_state, 'boot:' .. consumer)
redis.call('HDEL', started, consumer)
redis.call('XADD', ledger, '*', unpack(ledger_event('consumer-removed', {
  stream = stream, consumer = consumer, actor = actor,
})))
return { 'removed' }
