-- include: entry
-- include: dead_letter
-- include: chunk
-- include: body
-- Carry out what was decided about suspects, entries that failed before: copy them to be tried once
-- more, or make them dead letters.
--
-- KEYS  source, target, dead_letter, ledger, state, then one lock for each item, or none (same slot)
-- ARGV  group, uid, prefix, actor, trigger, allows_others, owner, cut_ms,
--       chunk        the state's chunk as it was seen; another one now means that it was decided on
--                    facts which no longer hold
--       kept         IDs of the chunk that are not resolved yet, separated by spaces
--       resolved     IDs of the chunk that need not be remembered any more
--       crowd_ms     entries of this owner delivered before failed together; 0: do not say so
--       then (id, action, retries, alone, reason, error) ...
--       action       retry: copied, alone in its chunk or with the others given here
--                    free: copied, and no chunk waits for it
--                    dead: made a dead letter
-- Returns  verdict, then
--            done   now_ms, copied, dead, {id, verdict} of what stayed, the chunk now
--            chunk-changed chunk
--            not-owner | no-group key | would-duplicate groups | position-ahead delivered generated
--            wrong-type key type | no-permission command key
-- Verdicts of entries: not-pending other-owner too-young locked too-wide gone refused next-batch
-- Costs  linear in the items, and in the bytes of their bodies, of which it reads 256 KiB at most, though
--        always one: the others are answered as next-batch.
-- Repeats safely: a settled entry is not pending any more, and the chunk has changed. All refusals
-- come before the first write. Redis keeps a script's effects together: all of them, or none.

local source, target, dead_letter, ledger, state = unpack(KEYS, 1, 5)
local group, uid, prefix, actor, trigger = unpack(ARGV, 1, 5)
local owner, cut = ARGV[7], tonumber(ARGV[8])
local chunk, kept, resolved, crowd_ms = unpack(ARGV, 9, 12)

local refusal = find_wrong_type(KEYS, { 'stream', 'stream', 'stream', 'stream', 'hash' })
  or find_forbidden({
    { 'XADD', target, '*', 'f', 'v' }, { 'XACK', source, group, '0-1' },
    { 'XADD', dead_letter, '*', 'f', 'v' }, { 'XADD', ledger, '*', 'f', 'v' },
    { 'HSET', state, 'f', 'v' }, { 'HDEL', state, 'f' },
  })
if refusal then
  return refusal
end
refusal = find_stale(state, uid, chunk)
if refusal then
  return refusal
end
local copies = false
for i = 13, #ARGV, 6 do
  copies = copies or ARGV[i + 1] ~= 'dead'
end
if copies then
  refusal = find_obstacle(target, group, ARGV[6] == '1')
  if refusal then
    return refusal
  end
end

local now, plan, stays, asked = server_ms(), {}, {}, {}
local bytes = 0
for i = 13, #ARGV, 6 do
  local id, entry, at = ARGV[i], nil, nil
  entry, at = look_in_time(function()
    return is_pending(source, group, id)
  end)
  local lock = KEYS[6 + (i - 13) / 6]
  if not entry or asked[id] then
    stays[#stays + 1] = { id, 'not-pending' }
  elseif entry[2] ~= owner then
    stays[#stays + 1] = { id, 'other-owner' }
  elseif at - entry[3] >= cut then
    stays[#stays + 1] = { id, 'too-young' }
  elseif lock and redis.call('EXISTS', lock) == 1 then
    stays[#stays + 1] = { id, 'locked' }
  elseif bytes > MOST_BYTES then
    stays[#stays + 1] = { id, 'next-batch' }
  else
    local found = redis.call('XRANGE', source, id, id)[1]
    bytes = bytes + size_of_body(found and found[2] or {})
    local root, _, keep = read_marks(id, found and found[2] or {}, prefix)
    if not found then
      stays[#stays + 1] = { id, 'gone' }
    elseif keep > 2 * WIDEST then
      stays[#stays + 1] = { id, 'too-wide' }
    else
      plan[#plan + 1] = { entry, found[2], root, keep, i, at }
    end
  end
  asked[id] = true
end

-- From here on it writes.
local acked, forgotten, members = {}, {}, {}
local requeued, buried = {}, {}
for _, one in ipairs(plan) do
  local entry, fields, root, keep, at = one[1], one[2], one[3], one[4], one[5]
  local action, retries, alone = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local added, events
  if action == 'dead' then
    added = add_dead_letter(dead_letter, root, fields, keep, prefix, {
      stream = source, group = group, consumer = owner, deliveries = entry[4],
      retries = tonumber(retries), reason = ARGV[at + 4], error = ARGV[at + 5],
      delivered_ms = one[6] - entry[3], now_ms = now,
    })
    events = buried
  else
    fields[keep + 1], fields[keep + 2] = prefix .. 'original_id', root
    fields[keep + 3], fields[keep + 4] = prefix .. 'retry_count', retries
    added = redis.pcall('XADD', target, '*', unpack(fields))
    events = requeued
  end
  if #acked == 0 and refuses_all(added) then
    return added
  end
  if type(added) ~= 'string' then
    stays[#stays + 1] = { entry[1], 'refused' }
  else
    acked[#acked + 1] = entry[1]
    forgotten[#forgotten + 1] = 'try:' .. entry[1]
    events[#events + 1] = entry[1]
    events[#events + 1] = added .. ' ' .. root .. ' ' .. retries .. ' ' .. text(entry[4]) .. ' ' .. text(entry[3])
    if action ~= 'dead' then
      redis.call('HSET', state, 'try:' .. added, retries .. ' ' .. alone .. ' 0')
    end
    if action == 'retry' then
      members[#members + 1] = added
    end
  end
end

if #acked > 0 then
  redis.call('XACK', source, group, unpack(acked))
  redis.call('HDEL', state, unpack(forgotten))
end
local function record(kind, pairs_of, total, why, to)
  if #pairs_of > 0 then
    redis.call('XADD', ledger, '*', 'kind', kind, 'stream', source, 'consumer', owner,
      'reason', why, 'trigger', trigger, 'actor', actor, 'target', to, unpack(pairs_of))
    redis.pcall('HINCRBY', state, total, #pairs_of / 2)
  end
end
record('requeued', requeued, 'total:requeued', 'tried again after a failure', target)
record('dead-lettered', buried, 'total:dead_lettered', ARGV[17], dead_letter)

local after = write_chunk(state, chunk, kept, resolved, members)
write_crowd(state, owner, crowd_ms)
return { 'done', text(now), #requeued / 2, #buried / 2, stays, after }
