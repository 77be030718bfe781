-- include: entry
-- include: ids
-- include: stream
-- include: adoption
-- include: loss
-- include: ledger
-- include: watch
-- Create everything that a consumer group needs and record which resource acts on it, or do neither.
--
-- KEYS     stream, dead_letter, ledger, state, started, dead_letter_owner, worker_state, worker_ledger,
--          further... (streams that need a group of the same name, which begins at 0-0; same slot)
-- ARGV     group, start ('$' or an entry ID; for the first creation only), hold_ms: number, uid,
--          cluster, namespace, name, created_ms: number, existed: flag (the caller knows that the
--          group existed), newest (the last-delivered-id of the newest observation, or ''),
--          lost_position, lost_after, lost_before, lost_cause, lost_undelivered, lost_pending,
--          lost_observed_ms (entries lost with a deleted stream, by its last observation, as in
--          record_loss.lua; lost_position is '' if none were lost)
-- READS    type stream dead_letter ledger state started dead_letter_owner worker_state worker_ledger
--          further; time; hmget state dead_letter_owner; hscan state started worker_state;
--          xpending stream further; [info]; xinfo|stream stream dead_letter ledger worker_ledger further;
--          xinfo|groups dead_letter ledger worker_ledger further;
--          xrange! stream (needed only after a group was lost, but checked in every run)
-- WRITES   xgroup|create stream further; xadd dead_letter ledger worker_ledger;
--          xdel dead_letter worker_ledger; hset state started dead_letter_owner worker_state; hdel state
-- USER     operator
-- why      first       no resource acted on the group, and it did not exist: it begins at `start`
--          continues   the stream is the same: the group begins at its last recorded position, or
--                      before the lowest entry that was pending then
--          lost-tail   another master does not have all recorded entries: as in continues, or at the
--                      end of the stream if that comes first
--          new-stream  another stream, or nothing is recorded: it begins at 0-0
-- repeats  how many of the stream's entries may have been delivered before, or 'many'; entries
--          delivered after the newest observation are not counted
-- Costs  constant except for counting repeats: 1,001 entries or 256 KiB of them, but at least one. It also
--        reads at most three other bodies, and those that XINFO STREAM reads.
-- A group is lost if it is missing although a resource acted on it. Then entries that were pending or not
-- delivered are delivered; some entries repeat, and none is skipped. The number of entries that the group has
-- read is left to the server, because a wrong number gives a wrong lag.
-- Repeats safely: an existing group or stream does not change. The ownership record of a settled group is
-- written again only after a third of hold_ms. Every refusal comes before the first write, and the ownership
-- records are written last: if the script ends between two writes, the next run continues. A loss is
-- recorded once, and before the group is created, because it cannot be detected afterwards. The recorded
-- position of an adopted group is deleted, because it may be months old.

local refusal = find_refusal()
if refusal then
  return refusal
end
local with_group = { stream, unpack(further) }

local now_ms = server_ms()
-- Another replica destroyed the group, because it already knows that the resource is deleted. After hold_ms
-- the record is ignored: an etcd that was restored from a backup can have the resource again.
local destroyed = redis.call('HMGET', dead_letter_owner, 'destroyed_uid', 'destroyed_ms')
if destroyed[1] == uid and math.abs(now_ms - (tonumber(destroyed[2] or 0) or 0)) <= hold_ms then
  return { 'removed' }
end
local held = redis.call('HMGET', state, 'owner:uid', 'owner:cluster', 'owner:namespace',
  'owner:name', 'owner:created_ms', 'owner:held_until_ms', 'group:format')
local is_ours = held[1] == uid
local left_ms = (tonumber(held[6] or 0) or 0) - now_ms
-- A hold far in the future was written before the clock was set back, and is ignored.
local is_alive = held[1] and left_ms > 0 and left_ms <= 2 * hold_ms

-- Whether a resource has precedence over this one. `them` has its uid, cluster, namespace, name, created_ms.
local function is_theirs(them)
  local theirs_ms = tonumber(them[5] or 0) or 0
  if cluster ~= '' and them[2] == cluster and them[3] == namespace and them[4] == name then
    -- A name in a cluster is one resource at a time: the younger one has replaced the other.
    return theirs_ms > created_ms
  end
  if theirs_ms ~= created_ms then
    return theirs_ms < created_ms
  end
  return them[1] < uid
end

if is_alive and not is_ours and is_theirs(held) then
  return { 'conflict', held[1], held[2], held[3], held[4], held[5], held[6] }
end

-- The first words of the fields of a state, as pelops/domain/records/state.py lists them.
local STATE_WORDS = {}
for word in string.gmatch('owner owned master sweep seen group trim bookmark back loss dropped total '
  .. 'watch retry chunk crowd try offer offers pod boot gone alone large', '%a+') do
  STATE_WORDS[word] = true
end

-- A field, within the first page of a hash, that Pelops does not write; nil if there is none.
local function find_foreign_field(key, is_written)
  local found = redis.call('HSCAN', key, '0', 'COUNT', 100)[2]
  for i = 1, #found, 2 do
    if not is_written(found[i], found[i + 1]) then
      return found[i]
    end
  end
  return nil
end

-- The key of a hash with a foreign field, and that field; nil if there is none.
local function find_foreign_hash()
  local owned = redis.call('HMGET', state, 'owned:started', 'owned:worker-state')
  local field
  if not owned[1] then
    field = find_foreign_field(state, function(name)
      return STATE_WORDS[string.match(name, '^%a+') or '']
    end)
    if field then
      return state, field
    end
    field = find_foreign_field(started, function(_, ids)
      return string.find(ids, '^[%d%- ]*$')
    end)
    if field then
      return started, field
    end
  end
  if not owned[2] then
    field = find_foreign_field(worker_state, function(name)
      return name == '' or string.find(name, '^boot:') or string.find(name, '^alone:')
    end)
    if field then
      return worker_state, field
    end
  end
  return nil
end

-- Return a verdict if Pelops may not write to the dead-letter stream or delete from it for this group, else
-- nil.
local function refuse_dead_letters()
  if owns_dead_letters(dead_letter_owner, stream, group) then
    return nil
  end
  local theirs = redis.call('HMGET', dead_letter_owner, 'uid', 'cluster', 'namespace', 'name',
    'created_ms', 'held_until_ms', 'stream', 'group')
  local left = (tonumber(theirs[6] or 0) or 0) - now_ms
  if theirs[1] and theirs[1] ~= uid and left > 0 and left <= 2 * hold_ms and is_theirs(theirs) then
    return { 'letters-conflict', dead_letter, theirs[3] or '', theirs[4] or '', theirs[2] or '',
      theirs[7] or '', theirs[8] or '' }
  end
  local seen = see_stream(dead_letter)
  if not seen then
    return nil
  end
  if seen['groups'] > 0 then
    return { 'stream-in-use', dead_letter, 'groups', redis.call('XINFO', 'GROUPS', dead_letter)[1][2] }
  end
  local retry = retry_beside(state)
  local function is_ours(fields)
    return is_own_letter(fields, stream, group, retry)
  end
  if not holds_only(seen, is_ours) then
    return { 'stream-in-use', dead_letter, 'entries', '' }
  end
  return nil
end

local taken, field = find_foreign_hash()
if taken then
  return { 'stream-in-use', taken, 'fields', field }
end
for _, key in ipairs({ ledger, worker_ledger, unpack(further) }) do
  local why, example = find_foreign(state, key, group)
  if why then
    return { 'stream-in-use', key, why, example }
  end
end
refusal = refuse_dead_letters()
if refusal then
  return refusal
end

local lacks = {}
for _, key in ipairs(with_group) do
  local pending = redis.pcall('XPENDING', key, group, '-', '+', 1)
  lacks[key] = pending.err and string.find(pending.err, 'NOGROUP', 1, true)
  if pending.err and not lacks[key] then
    return pending
  end
end

-- The recorded position of the group and counters of the stream; nil if they are missing or damaged.
local function recall()
  local seen = redis.call('HMGET', state, 'seen:last_delivered', 'seen:lowest_pending',
    'seen:entries_added', 'seen:last_generated', 'seen:replid', 'master:replid')
  local added = string.match(seen[3] or '', '^%d+$') and tonumber(seen[3])
  if not (is_id(seen[1]) and (seen[2] == '' or is_id(seen[2])) and added and is_id(seen[4])) then
    return nil
  end
  return {
    delivered = seen[1], lowest = seen[2], added = added, generated = seen[4],
    replid = seen[5] ~= '' and seen[5] or seen[6],
  }
end

local function see_replid()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or nil
end

local function still_holds(seen)
  for _, id in ipairs({ seen.generated, seen.delivered, seen.lowest }) do
    if id ~= '' and #redis.call('XRANGE', stream, id, id) > 0 then
      return true
    end
  end
  return false
end

local function count_repeats(position, delivered)
  local count, bytes, from, size = 0, 0, '(' .. position, 1
  if not comes_before(position, delivered) then
    return '0'
  end
  while count <= 1000 and bytes < 262144 do
    local page = redis.call('XRANGE', stream, from, delivered, 'COUNT', size)
    for _, entry in ipairs(page) do
      for _, part in ipairs(entry[2]) do
        bytes = bytes + #part
      end
    end
    count = count + #page
    if #page < size then
      return text(count)
    end
    size = math.min(2 * size, 4) -- the sizes of the next ones are not known
    from = '(' .. page[#page][1]
  end
  return 'many'
end

local found = lacks[stream] and see_stream(stream)
local replid = lacks[stream] and see_replid()

-- Returns where the group begins, why, how many entries repeat, and its last recorded position if known.
local function decide_position()
  if not held[1] and not existed then
    return start, 'first', '0'
  end
  local seen, why = held[1] and recall(), nil
  if seen and found then
    local continues = found['entries-added'] >= seen.added
      and not comes_before(found['last-generated-id'], seen.generated)
    local is_other_master = seen.replid and replid and seen.replid ~= replid
    why = continues and 'continues' or (is_other_master and still_holds(seen) and 'lost-tail')
  end
  if not why then
    return '0-0', 'new-stream', text(found and found['length'] or 0)
  end
  local position = first_of(seen.delivered, found['last-generated-id'])
  if seen.lowest ~= '' then
    position = first_of(position, id_before(seen.lowest))
  end
  local delivered = seen.delivered
  if is_id(newest) and comes_before(delivered, newest) then
    delivered = newest
  end
  return position, why, count_repeats(position, delivered), seen.delivered
end

local position, why, repeats, was_at
if lacks[stream] then
  position, why, repeats, was_at = decide_position()
end

-- From here on it writes.
local function record(kind, told)
  told.uid, told.cluster, told.namespace, told.name = uid, cluster, namespace, name
  redis.call('XADD', ledger, '*', unpack(ledger_event(kind, told)))
end

-- During the migration of a slot, the server refuses scripts that name a key that does not exist.
for _, key in ipairs({ started, worker_state }) do
  if redis.call('TYPE', key).ok == 'none' then
    redis.call('HSET', key, '', '')
  end
end
for _, key in ipairs({ started, worker_state, ledger, worker_ledger, unpack(further) }) do
  if not redis.call('HMGET', state, 'owned:' .. last_word(key))[1] then
    redis.call('HSET', state, 'owned:' .. last_word(key), '1')
  end
end
local had_ledger = redis.call('TYPE', ledger).ok ~= 'none'
for _, key in ipairs({ dead_letter, worker_ledger }) do
  if redis.call('TYPE', key).ok == 'none' then
    -- With the lowest possible ID, no later XADD can be refused because of it.
    redis.call('XADD', key, '0-1', 'placeholder', '')
    redis.call('XDEL', key, '0-1')
  end
end
local lost = { position = lost_position, at_least = '0', at_most = '', after = lost_after,
  before = lost_before, cause = lost_cause, undelivered = lost_undelivered, pending = lost_pending,
  observed_ms = lost_observed_ms }
local is_lacking = false
for _, key in ipairs(with_group) do
  is_lacking = is_lacking or lacks[key]
end
if is_lacking and lost.position ~= ''
  and not is_recorded(redis.call('HMGET', state, 'loss:found_ms')[1], lost.observed_ms, now_ms) then
  write_loss(ledger, state, now_ms, lost)
end
if lacks[stream] then
  redis.call('XGROUP', 'CREATE', stream, group, position, 'MKSTREAM')
  found = found or see_stream(stream)
  local at = position == '$' and found['last-generated-id'] or position
  -- Replace the data about the former group: the new one begins here, without pending entries.
  redis.call('HSET', state, 'seen:last_delivered', at, 'seen:lowest_pending', '',
    'seen:entries_added', text(found['entries-added']), 'seen:last_generated',
    found['last-generated-id'], 'seen:at_ms', text(now_ms), 'seen:replid', replid or '',
    'seen:pending', '0', 'seen:undelivered', '', 'group:created_ms', text(now_ms))
  local known = read_watch(redis.call('HMGET', state, 'watch')[1])
  write_watch(state, compare_watch(known, found, at, replid))
  -- How many entries were ever added up to the position is known only at the end of the stream.
  local added = at == found['last-generated-id'] and text(found['entries-added']) or ''
  record('group-created', {
    stream = stream, position = at, why = why, repeats = repeats, from = was_at or '', added = added,
  })
  position = at
elseif not is_ours then
  redis.call('HDEL', state, 'seen:last_delivered', 'seen:lowest_pending', 'seen:entries_added',
    'seen:last_generated', 'seen:at_ms', 'seen:replid', 'seen:pending', 'seen:undelivered', 'watch')
  record(held[1] and 'owner-changed' or 'group-adopted', { position = '' })
elseif not had_ledger then
  record('group-adopted', { position = '' })
end
for i = 2, #with_group do
  if lacks[with_group[i]] then
    redis.call('XGROUP', 'CREATE', with_group[i], group, '0-0', 'MKSTREAM')
    record('group-created', {
      stream = with_group[i], position = '0-0', why = 'first', repeats = '0', from = '',
    })
  end
end

if held[7] ~= STATE_FORMAT then
  redis.call('HSET', state, 'group:format', STATE_FORMAT)
end
local held_until_ms = tonumber(held[6] or 0)
if not is_ours or not is_alive or left_ms * 3 < hold_ms * 2 then
  held_until_ms = now_ms + hold_ms
  redis.call('HSET', state, 'owner:uid', uid, 'owner:cluster', cluster,
    'owner:namespace', namespace, 'owner:name', name,
    'owner:created_ms', text(created_ms), 'owner:held_until_ms', text(held_until_ms))
end
local letters_of = redis.call('HMGET', dead_letter_owner, 'stream', 'group', 'uid', 'held_until_ms')
if letters_of[1] ~= stream or letters_of[2] ~= group or letters_of[3] ~= uid
  or letters_of[4] ~= text(held_until_ms) then
  redis.call('HSET', dead_letter_owner, 'stream', stream, 'group', group, 'uid', uid,
    'cluster', cluster, 'namespace', namespace, 'name', name,
    'created_ms', text(created_ms), 'held_until_ms', text(held_until_ms))
end

if lacks[stream] then
  return { 'created', text(held_until_ms), position, why, repeats }
end
return { is_ours and 'settled' or 'adopted', text(held_until_ms) }
