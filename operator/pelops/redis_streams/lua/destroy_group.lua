-- include: entry
-- include: stream
-- include: ahead
-- include: adoption
-- Destroy a consumer group and its own keys, if its ownership record names the caller's resource.
--
-- KEYS     stream, state, started, retry, offer_stream, ledger, audit, dead_letter_owner, worker_state,
--          worker_ledger  (same slot)
-- ARGV     group, uid
-- READS    type stream state started retry offer_stream ledger audit dead_letter_owner worker_state
--          worker_ledger; hmget state audit dead_letter_owner; xpending stream retry;
--          xinfo|stream retry offer_stream ledger worker_ledger;
--          xinfo|groups retry offer_stream ledger worker_ledger; xrange retry; time
-- WRITES   xgroup|destroy stream; unlink state started retry offer_stream ledger audit worker_state
--          worker_ledger; hdel dead_letter_owner; [hset dead_letter_owner]
-- USER     operator for delete-policy
-- Costs  linear in the pending entries of the group, which Redis frees before it answers, and in at
--        most 500 entries or 500 KB of the retry stream.
-- Invariant 14: a key whose content Pelops did not write stays, whatever its name.
-- Repeats safely: the second run finds neither group nor ownership record, and returns absent. If the script
-- ends before its last line, the ownership record stays, and the next run continues. The stream and its
-- dead letters stay, and so does the record of their group. That record also names the resource whose group
-- is destroyed: a replica may find the group missing before it observes the deletion, and must not create it
-- again.

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
  return { 'conflict', held[1] or false, held[2] or false, held[3] or false, held[4] or false,
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
local ours = {}
for _, key in ipairs({ retry, offer_stream, ledger, worker_ledger }) do
  if redis.call('TYPE', key).ok == 'stream' and not find_foreign(state, key, group) then
    ours[#ours + 1] = key
  end
end
for _, key in ipairs({ started, worker_state }) do
  if redis.call('TYPE', key).ok == 'hash' and redis.call('HMGET', state, 'owned:' .. last_word(key))[1] then
    ours[#ours + 1] = key
  end
end
if redis.call('TYPE', audit).ok == 'hash' and redis.call('HMGET', audit, 'archived')[1] then
  ours[#ours + 1] = audit
end
if group_exists() then
  redis.call('XGROUP', 'DESTROY', stream, group)
end
if redis.call('TYPE', dead_letter_owner).ok == 'hash'
  and redis.call('HMGET', dead_letter_owner, 'uid')[1] == uid then
  redis.call('HDEL', dead_letter_owner, 'held_until_ms')
  -- A server without free memory refuses this write. The group is destroyed nevertheless.
  redis.pcall('HSET', dead_letter_owner, 'destroyed_uid', uid, 'destroyed_ms', text(server_ms()))
end
if #ours > 0 then
  redis.call('UNLINK', unpack(ours))
end
redis.call('UNLINK', state)
return { 'destroyed', left }
