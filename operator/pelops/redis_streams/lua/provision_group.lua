-- Make everything that a consumer group needs, and write down who acts on it; or refuse all of it.
--
-- KEYS  stream, dead_letter, ledger, state              (same slot)
-- ARGV  group, start ('$' or an entry ID; for the very first creation), hold_ms, uid, cluster, namespace, name, created_ms
-- Returns  verdict, then
--            created | adopted | settled   held_until_ms
--            conflict                      uid, cluster, namespace, name, created_ms, held_until_ms
--            wrong-type                    key, type found
--            no-permission                 command, key
-- Costs  constant.
-- A group that is missing though the caller acts on it was lost: it begins at 0-0 then, whatever
-- `start` says. Entries repeat, and none is skipped.
-- Repeats safely: an existing group, stream or record is left as it is; a settled group is written
-- to only when a third of its hold is used up. Every refusal comes before the first write, and the
-- record of the owner is the last one: dying between two of them leaves work for the next run.

local stream, dead_letter, ledger, state = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, start, hold_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local uid, cluster, created_ms = ARGV[4], ARGV[5], tonumber(ARGV[8])

local wanted = { 'stream', 'stream', 'stream', 'hash' }
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = redis.call('TYPE', key).ok
  if found[i] ~= 'none' and found[i] ~= wanted[i] then
    return { 'wrong-type', key, found[i] }
  end
end

local writes = {
  { 'XGROUP', 'CREATE', stream, group, start, 'MKSTREAM' },
  { 'XADD', dead_letter, '0-1', 'f', 'v' },
  { 'XDEL', dead_letter, '0-1' },
  { 'XADD', ledger, '*', 'f', 'v' },
  { 'HSET', state, 'f', 'v' },
}
for _, write in ipairs(writes) do
  -- Not every server that speaks the protocol has this function; the writes themselves tell then.
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(write)) then
    local is_sub = write[1] == 'XGROUP'
    return { 'no-permission', is_sub and 'xgroup|create' or write[1], is_sub and write[3] or write[2] }
  end
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HMGET', state, 'owner:uid', 'owner:cluster', 'owner:namespace',
  'owner:name', 'owner:created_ms', 'owner:held_until_ms')
local is_ours = held[1] == uid
local left_ms = (tonumber(held[6] or 0) or 0) - now_ms
-- A hold far in the future was written before the clock went back, and binds nobody.
local is_alive = held[1] and left_ms > 0 and left_ms <= 2 * hold_ms

local function is_theirs()
  local theirs_ms = tonumber(held[5] or 0) or 0
  if cluster ~= '' and held[2] == cluster and held[3] == ARGV[6] and held[4] == ARGV[7] then
    -- One name in one cluster is one resource at a time: a younger one has replaced the other.
    return theirs_ms > created_ms
  end
  if theirs_ms ~= created_ms then
    return theirs_ms < created_ms
  end
  return held[1] < uid
end

if is_alive and not is_ours and is_theirs() then
  return { 'conflict', held[1], held[2], held[3], held[4], held[5], held[6] }
end

local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1)
local is_missing = pending.err and string.find(pending.err, 'NOGROUP', 1, true)
if pending.err and not is_missing then
  return pending
end

local event
if is_missing and is_ours then
  start = '0-0'
end
if is_missing then
  redis.call('XGROUP', 'CREATE', stream, group, start, 'MKSTREAM')
  event = 'group-created'
elseif not is_ours then
  event = held[1] and 'owner-changed' or 'group-adopted'
elseif found[3] == 'none' then
  event = 'group-adopted'
end

if found[2] == 'none' then
  -- The lowest ID there is: no later XADD can be refused because of it.
  redis.call('XADD', dead_letter, '0-1', 'placeholder', '')
  redis.call('XDEL', dead_letter, '0-1')
end
if event then
  redis.call('XADD', ledger, '*', 'kind', event, 'uid', uid, 'cluster', cluster,
    'namespace', ARGV[6], 'name', ARGV[7], 'position', is_missing and start or '')
end

local held_until_ms = tonumber(held[6] or 0)
if not is_ours or not is_alive or left_ms * 3 < hold_ms * 2 then
  held_until_ms = now_ms + hold_ms
  redis.call('HSET', state, 'owner:uid', uid, 'owner:cluster', cluster,
    'owner:namespace', ARGV[6], 'owner:name', ARGV[7],
    'owner:created_ms', ARGV[8], 'owner:held_until_ms', string.format('%.0f', held_until_ms))
end

local verdict = is_missing and 'created' or (is_ours and 'settled' or 'adopted')
return { verdict, string.format('%.0f', held_until_ms) }
