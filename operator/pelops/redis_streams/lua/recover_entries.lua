-- include: entry
-- include: dead_letter
-- include: large
-- include: ledger
-- Requeue a batch of stuck entries: copy each to the end of a stream and acknowledge it.
--
-- KEYS     source, target, dead_letter, ledger, state, started, locks... (one for each item, or
--          none; same slot. The target is the stream itself or the group's retry stream)
-- ARGV     group, uid, prefix, batch: number, max_bytes: number, max_entry_bytes: number, actor, trigger, reason,
--          action (requeue, or examine: move nothing, and return every entry in answered),
--          counts_attempt: flag (the process failed; if not set, it ended on purpose, and no entry failed),
--          count_from_ms: number (an entry delivered earlier gets no failed attempt, because the server
--          changed since), stages_first: flag (an entry that never failed is also returned in answered
--          instead of moved), delay_before_ms: number (an entry delivered earlier stays, because the
--          position of the group went back, and the entry may be acknowledged already),
--          wait_ms: number (backoff: an entry that failed moves only after it has been idle so long),
--          allows_others: flag (other groups may receive the copies),
--          owner, cutoff_ms: number (only entries delivered before; '': no cutoff),
--          start (where a page of the owner's entries begins; '': use items instead),
--          items{id, idle_ms: number}... (an item moves if it has been idle so long and its lock does
--          not exist)
-- READS    type source target dead_letter ledger state started; time; hget state started; hmget
--          state; xinfo|groups target; xinfo|stream target; xpending source; xrange source; exists
--          locks for locks
-- WRITES   xadd target dead_letter ledger; xack source; hincrby state; hset state; hdel state
-- USER     operator for recovery
-- Verdicts of entries: not-pending other-owner too-young held locked too-wide too-large waiting
--           refused next-batch
-- Costs  linear in the batch, and in the bytes of the bodies read: max_bytes, but at least one entry, and
--        sometimes three more. An entry that is larger than max_entry_bytes is read once and never
--        copied. XINFO GROUPS is linear in the groups.
-- Repeats safely: a moved entry is no longer pending. All refusals come before the first write. Each copy
-- is written before its acknowledgement. Redis keeps a script's effects together, in its log and on its
-- replicas, so a crash leaves all of them or none.

local moves = action == 'requeue'
local refusal = find_refusal()
if refusal then
  return refusal
end
local remembered = redis.call('HMGET', state, 'owner:uid', 'large')
if is_not_owner(remembered[1], uid) then
  return { 'not-owner' }
end
local large, has_new_large = parse_large(remembered[2]), false
refusal = find_obstacle(target, group, not moves or allows_others)
if refusal and (moves or refusal[1] == 'no-group') then
  return refusal
end

local now
local rest = ''

-- The entries to examine further, as {id, owner, idle_ms, deliveries}, and those that stay, with the reason.
local page, stays = {}, {}
if start ~= '' then
  local found
  found, now = look_in_time(function()
    return redis.call('XPENDING', source, group, start, '+', batch, owner)
  end)
  for _, entry in ipairs(bound_deliveries(found)) do
    local delivered = now - entry[3]
    if delivered >= cutoff_ms then
      stays[#stays + 1] = { entry[1], 'too-young' }
    elseif delivered < delay_before_ms then
      stays[#stays + 1] = { entry[1], 'held' }
    else
      page[#page + 1] = entry
    end
  end
  rest = #found == batch and '(' .. found[batch][1] or ''
else
  local asked = {}
  for i, item in ipairs(items) do
    local id, entry = item.id, nil
    entry, now = look_in_time(function()
      return is_pending(source, group, id)
    end)
    local lock = locks[i]
    if asked[id] then
      entry = nil
    elseif not entry then
      stays[#stays + 1] = { id, 'not-pending' }
    elseif entry[2] ~= owner then
      stays[#stays + 1] = { id, 'other-owner' }
    elseif entry[3] >= 0 and (entry[3] < item.idle_ms or cutoff_ms and now - entry[3] >= cutoff_ms) then
      stays[#stays + 1] = { id, 'too-young' }
    elseif now - entry[3] < delay_before_ms then
      stays[#stays + 1] = { id, 'held' }
    elseif lock and redis.call('EXISTS', lock) == 1 then
      stays[#stays + 1] = { id, 'locked' }
    else
      entry[5] = now
      page[#page + 1] = entry
    end
    asked[id] = true
  end
  now = now or server_ms()
  for _, entry in ipairs(page) do
    entry[3] = entry[3] >= 0 and entry[3] + now - entry[5] or entry[3] -- all idle times as of `now`
  end
end

-- The entries that an SDK worker recorded as started. Without a record, all of them count as started.
local marks, list = false, redis.call('HGET', started, owner)
if list then
  marks = {}
  for id in string.gmatch(list, '%d+%-%d+') do
    marks[id] = true
  end
end

-- Bodies by ID. One call reads several as long as the page's entries follow each other in the stream. The
-- first is read alone, then two and four at a time, because their sizes are not known.
local bodies, read_to, together = {}, 0, 1
local function read_body(i)
  if i > read_to then
    -- One at a time if a known large entry may lie in between.
    local j = next(large) and i or math.min(i + together - 1, #page)
    local found = redis.call('XRANGE', source, page[i][1], page[j][1], 'COUNT', j - i + 1)
    for _, one in ipairs(found) do
      bodies[one[1]] = one[2]
    end
    -- Entries of other owners may lie in between: IDs that were not reached are read by the next call.
    local is_whole, k = #found <= j - i, i
    while k < j and (is_whole or bodies[page[k + 1][1]]) do
      k = k + 1
    end
    read_to, together = k, k == j and math.min(2 * together, 4) or k - i + 1
  end
  local id = page[i][1]
  if not bodies[id] then
    -- IDs may be in any order, so an entry counts as deleted only after it was looked up by itself.
    local found = redis.call('XRANGE', source, id, id)[1]
    bodies[id] = found and found[2]
  end
  return bodies[id]
end

local plan, gone, answered, bytes = {}, {}, {}, 0
for i, entry in ipairs(page) do
  if bytes > max_bytes then
    rest = '(' .. page[i - 1][1]
    for j = i, #page do
      stays[#stays + 1] = { page[j][1], 'next-batch' }
    end
    break
  end
  local id, idle = entry[1], entry[3]
  local is_known = (large[id] or 0) > max_entry_bytes
  local fields = is_known and {} or read_body(i)
  local size = is_known and large[id] or size_of_body(fields or {})
  if fields and size > max_entry_bytes and not is_known then
    large[id], has_new_large = size, true
  end
  bytes = is_known and bytes or bytes + size
  if not fields then
    gone[#gone + 1] = entry
  elseif moves and size > max_entry_bytes then
    stays[#stays + 1] = { id, 'too-large' }
  else
    local root, retries, keep = read_marks(id, fields, prefix)
    -- An idle time of -1: XNACK gave the entry back to the group, and no attempt failed.
    local is_owned = counts_attempt and idle >= 0 and now - idle >= count_from_ms
    local mine = is_owned and (not marks or marks[id] or false)
    local marked = mine and marks
    if not moves or (mine and (retries > 0 or marked or stages_first)) then
      answered[#answered + 1] = { id, retries, idle, entry[4], mine and (marked and 2 or 1) or 0, false, root }
    elseif keep > 7800 then
      stays[#stays + 1] = { id, 'too-wide' }
    elseif mine and idle < wait_ms then
      stays[#stays + 1] = { id, 'waiting' }
    else
      local count = text(mine and retries + 1 or retries)
      fields[keep + 1], fields[keep + 2], fields[keep + 3], fields[keep + 4] = root_name, root, count_name, count
      plan[#plan + 1] = { entry, fields, root, count, keep, retries > 0 }
    end
  end
end

local co_failed = false
if #answered > 0 then
  local names = { 'crowd:' .. owner }
  for _, one in ipairs(answered) do
    names[#names + 1] = 'try:' .. one[1]
  end
  local known = redis.call('HMGET', state, unpack(names))
  co_failed = known[1]
  for i, one in ipairs(answered) do
    one[6] = known[i + 1]
  end
end

-- The copy of an entry that failed before inherits its record try:<id>, although this attempt does not
-- count as failed.
for _, one in ipairs(plan) do
  one[6] = one[6] and redis.call('HGET', state, 'try:' .. one[1][1])
end

-- From here on it writes.
if has_new_large then
  write_large(state, large)
end
local acked, event, copied = {}, {}, 0
local letters = {}
for _, one in ipairs(plan) do
  local entry, fields = one[1], one[2]
  local copy = redis.pcall('XADD', target, '*', unpack(fields))
  if #acked == 0 and refuses_all(copy) then
    return copy
  end
  if type(copy) == 'string' then
    copied = copied + 1
    acked[#acked + 1] = entry[1]
    event[2 * copied - 1] = entry[1]
    event[2 * copied] = ledger_entry(copy, one[3], one[4], text(entry[4]), text(entry[3]))
    if one[6] then
      -- Delete first: in two streams, entries of the same millisecond may have the same ID.
      redis.call('HDEL', state, 'try:' .. entry[1])
      redis.call('HSET', state, 'try:' .. copy, (string.gsub(one[6], '^(%S+ %S+) .*$', '%1 0')))
    end
  elseif string.find(copy.err or '', 'last possible', 1, true) or string.find(copy.err or '', 'equal or smaller', 1, true) then
    -- The stream can never accept another entry; the dead-letter stream can.
    local letter = add_dead_letter(dead_letter, one[3], fields, one[5], prefix, {
      stream = source, group = group, consumer = owner, deliveries = entry[4], retries = one[4],
      reason = 'StreamExhausted', error = 'the stream accepts no further IDs',
      delivered_ms = now - entry[3], now_ms = now,
    })
    if type(letter) == 'string' then
      acked[#acked + 1] = entry[1]
      letters[#letters + 1] = entry[1]
      letters[#letters + 1] = ledger_entry(letter, one[3], one[4], text(entry[4]), text(entry[3]))
    else
      stays[#stays + 1] = { entry[1], 'refused' }
    end
  else
    stays[#stays + 1] = { entry[1], 'refused' }
  end
end

local missing, tries = {}, {}
for i, entry in ipairs(gone) do
  tries[i] = 'try:' .. entry[1]
end
tries = #gone > 0 and redis.call('HMGET', state, unpack(tries))
for i, entry in ipairs(gone) do
  local letter = add_dead_letter(dead_letter, entry[1], {}, 0, prefix, {
    stream = source, group = group, consumer = owner, deliveries = entry[4], retries = 0,
    reason = 'PayloadGone', error = 'the entry was deleted or trimmed before it was acknowledged',
    delivered_ms = now - entry[3], now_ms = now,
  })
  if #acked == 0 and refuses_all(letter) then
    return letter
  end
  if type(letter) == 'string' then
    acked[#acked + 1] = entry[1]
    missing[#missing + 1] = entry[1]
    missing[#missing + 1] = ledger_entry(letter, entry[1], '0', text(entry[4]), text(entry[3]))
    if string.find(tries[i] or '', ' offered$') then
      -- It was on offer and no worker took it, so review_offers must not count it as taken.
      redis.call('HSET', state, 'gone:' .. entry[1], '1')
    end
  else
    stays[#stays + 1] = { entry[1], 'refused' }
  end
end

if #acked > 0 then
  redis.call('XACK', source, group, unpack(acked))
  local function record(kind, pairs_of, why, to)
    if #pairs_of > 0 then
      redis.call('XADD', ledger, '*', unpack(ledger_event(kind, {
        stream = source, consumer = owner, reason = why, trigger = trigger, actor = actor, target = to,
      }, pairs_of)))
    end
  end
  record('requeued', event, reason, target)
  record('payload-gone', missing, 'PayloadGone', dead_letter)
  record('dead-lettered', letters, 'StreamExhausted', dead_letter)
  if #event > 0 then
    redis.pcall('HINCRBY', state, 'total:requeued', #event / 2)
  end
  if #missing > 0 then
    redis.pcall('HINCRBY', state, 'total:payload_gone', #missing / 2)
  end
  if #letters > 0 then
    redis.pcall('HINCRBY', state, 'total:dead_lettered', #letters / 2)
  end
end

return { 'done', text(now), rest, #event / 2, event[1] or false, #missing / 2, stays, answered, co_failed }
