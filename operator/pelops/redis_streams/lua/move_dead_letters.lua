-- include: entry
-- include: ids
-- include: stream
-- include: ahead
-- include: adoption
-- include: body
-- include: ledger
-- include: redrive
-- Move dead letters of a group, oldest first: back to its stream or retry stream, to the stream of
-- discarded dead letters, or from there back to the dead-letter stream.
--
-- KEYS     source, target, stream, dead_letter, ledger, state, dead_letter_owner, [retry]
--          (same slot; the last one only if the backlog has a bound and there is a retry stream)
-- ARGV     group, uid, prefix, redrive (uid of the StreamRedrive), name, action (redriven, discarded or restored),
--          requested_by, actor, allows_others: flag (other groups may receive the copies), max_bytes: number,
--          max_entry_bytes: number, rate: number (dead letters per second, for all replicas together),
--          limit: number (dead letters that the redrive may move in total), max_backlog: number (above which
--          it stops), after, through (bounds of the page from which the IDs were selected), ids...
-- READS    type source target stream dead_letter ledger state dead_letter_owner retry; time;
--          hmget state dead_letter_owner; xinfo|groups stream target source dead_letter retry;
--          xinfo|stream stream target source retry; xpending stream retry; xrange source stream retry
-- WRITES   xadd target ledger; xdel source; hset state
-- USER     operator
-- Stops: done rate limit backlog exhausted behind, and more (call again)
-- Skips: vanished foreign no-body too-large too-wide damaged refused
-- Costs  linear in the dead letters, and in the bytes of the bodies read: max_bytes, but at least one body,
--        and sometimes a few more. XINFO GROUPS is linear in the groups.
-- Invariant 14: a dead letter is moved only if it names this group, its stream is recorded as this group's,
-- and no consumer group reads that stream.
-- Repeats safely: one script copies and deletes a dead letter, and those up to the cursor are not read
-- again. A page is refused unless the cursor has reached it, so no dead letter before it is skipped. All
-- refusals come before the first write. Each copy is written before the deletion. Redis keeps a script's
-- effects together, so a crash leaves all of them or none.

local refusal = find_refusal()
if refusal then
  return refusal
end
local total_name = 'total:' .. action
local held = redis.call('HMGET', state, 'owner:uid', total_name)
if is_not_owner(held[1], uid) then
  return { 'not-owner' }
end
if not owns_dead_letters(dead_letter_owner, stream, group) then
  return { 'letters-not-ours' }
end
local readers = count_groups(dead_letter)
if readers > 0 then
  return { 'letters-read', text(readers) }
end
if action == 'redriven' then
  refusal = find_obstacle(target, group, allows_others)
else
  local found, reader = find_foreign(state, action == 'restored' and source or target, group)
  refusal = found and { 'discarded-in-use', found, reader }
end
if refusal then
  return refusal
end

local now = server_ms()
local other, other_name = find_other_redrive(state, redrive, now)
if other then
  return { 'another-runs', other, other_name }
end
local record = read_redrive(state, redrive)
if not record then
  return { 'not-started' }
end
local moved_before = number_or_zero(record.moved)

-- The backlog of the group; nil if it cannot be counted.
local function find_backlog()
  local backlog = 0
  for _, key in ipairs({ stream, retry }) do -- `retry` may be nil
    local seen = see_stream(key)
    local ours = seen and see_group(key, group)
    if ours then
      local lag = ours['lag']
      if not lag or lag < 0 then
        local is_all
        lag, is_all = count_ahead(key, seen, ours['last-delivered-id'], DEEP, MOST_BYTES)
        if not is_all then
          return nil
        end
      end
      backlog = backlog + ours['pending'] + lag
    end
  end
  return backlog
end

-- How many dead letters may be moved now, and why the script stops after these.
local room, ends = math.huge, 'done'
local function allow(number, why)
  if number < room then
    room, ends = math.max(0, number), why
  end
end
if limit then
  allow(limit - moved_before, 'limit')
end
if max_backlog then
  local backlog = find_backlog()
  allow(backlog and max_backlog - backlog or 0, 'backlog')
end
-- Thousandths of dead letters that the rate allows now: at most those of one second.
local tokens = 0
if rate then
  local kept, kept_ms = string.match(record.bucket, '^(%d+) (%d+)$')
  tokens = 100 * rate
  if kept and #kept <= 15 and #kept_ms <= 15 then
    tokens = tonumber(kept) + math.max(0, now - tonumber(kept_ms)) * rate
  end
  tokens = math.min(math.max(tokens, kept and 0 or 1000), 1000 * math.max(1, rate))
  allow(math.floor(tokens / 1000), 'rate')
end

-- Bodies by ID. One call reads several as long as the dead letters follow each other in the stream. The
-- first is read alone, then more at a time as long as they are small.
local MOST_TOGETHER = 16
local bodies, read_to, together, bytes, largest = {}, 0, 1, 0, 1
local function keep_bodies(found)
  for _, one in ipairs(found) do
    local size = size_of_body(one[2])
    bytes, largest = bytes + size, math.max(largest, size)
    bodies[one[1]] = one[2]
  end
end
local function read_body(i)
  if i > read_to then
    local most = math.max(1, math.min(together, math.floor((max_bytes - bytes) / largest)))
    local j = math.min(i + most - 1, #ids)
    local found = redis.call('XRANGE', source, ids[i], ids[j], 'COUNT', j - i + 1)
    keep_bodies(found)
    -- Other entries may lie in between: IDs that were not reached are read by the next call.
    local is_whole, k = #found <= j - i, i
    while k < j and (is_whole or bodies[ids[k + 1]]) do
      k = k + 1
    end
    read_to, together = k, k == j and math.min(2 * together, MOST_TOGETHER) or k - i + 1
    if not bodies[ids[i]] and not is_whole then
      keep_bodies(redis.call('XRANGE', source, ids[i], ids[i]))
    end
  end
  return bodies[ids[i]]
end

-- Turn the fields of a dead letter into the copy that goes back to the group. Returns the copy and its root
-- ID, or the reason why there is no copy. A copy is never so wide that it could not be recovered, or become a
-- dead letter, once more.
local WIDEST_LETTER, WIDEST_COPY = 7900, 7796
local generated = action == 'redriven' and see_stream(target)
generated = generated and generated['last-generated-id'] or '0-0'
local newest = last_of(generated, text(now) .. '-0')
local function make_copy(fields, named, keep, letter_prefix)
  local root, returned = named.original_id, 0
  if keep == 0 then
    return 'no-body'
  elseif not is_id(root) or root ~= generated and not comes_before(root, newest) then
    return 'damaged' -- the copy's ID has to be greater than its root ID
  end
  if keep >= 4 and fields[keep - 3] == letter_prefix .. 'redrive' and fields[keep - 1] == letter_prefix .. 'returned'
    and string.find(fields[keep], '^%d+$') and #fields[keep] <= 6
    and string.find(fields[keep - 2], '^[%l%d.-]+/[%w-]+$') and #fields[keep - 2] <= 318 then
    returned, keep = tonumber(fields[keep]), keep - 4
  end
  if keep > WIDEST_COPY then
    return 'too-wide'
  end
  for i = #fields, keep + 9, -1 do
    fields[i] = nil
  end
  fields[keep + 1], fields[keep + 2] = prefix .. 'redrive', name .. '/' .. redrive
  fields[keep + 3], fields[keep + 4] = prefix .. 'returned', text(math.min(returned + 1, 999999))
  fields[keep + 5], fields[keep + 6] = prefix .. 'original_id', root
  fields[keep + 7], fields[keep + 8] = prefix .. 'retry_count', '0'
  return fields, root
end

local skipped = {}
local function skip(why)
  skipped[why] = (skipped[why] or 0) + 1
end

local cursor, stop, left = record.cursor, 'done', 0
if comes_before(cursor, after) then
  return { 'done', 'behind', 0, 0, '', render_redrive(record, now) }
end

-- From here on it writes.
local moved, event, first, last = {}, {}, nil, nil
local own_retry = retry_beside(state)
local bound = first_of(through, record['until'])
for i, id in ipairs(ids) do
  if comes_before(cursor, id) and not comes_before(bound, id) then
    left = #ids - i + 1
    if #moved >= room then
      stop = ends
      break
    elseif bytes > max_bytes then
      stop = 'more'
      break
    end
    local fields, why = read_body(i), nil
    local named, keep, letter_prefix
    if fields then
      named, keep, letter_prefix = read_letter(fields)
    end
    local copy, root
    if not fields then
      why = 'vanished'
    elseif not named or not names_group(named, stream, group, own_retry) then
      why = 'foreign'
    elseif action == 'redriven' then
      copy, root = make_copy(fields, named, keep, letter_prefix)
      if type(copy) == 'string' then
        copy, why = nil, copy
      elseif size_of_body(copy) > max_entry_bytes then
        why = 'too-large'
      end
    elseif #fields > WIDEST_LETTER then
      why = 'too-wide'
    else
      copy, root = fields, is_id(named.original_id) and named.original_id or id
    end
    if not why then
      local new = redis.pcall('XADD', target, '*', unpack(copy))
      if type(new) == 'string' then
        first, last = first or new, new
        moved[#moved + 1] = id
        event[#event + 1] = id
        event[#event + 1] = ledger_entry(new, root, '0', '0', '0')
      elseif refuses_all(new) then
        if #moved == 0 then
          return new
        end
        stop = 'more'
        break
      elseif string.find(new.err or '', 'last possible', 1, true) or string.find(new.err or '', 'equal or smaller', 1, true) then
        stop = 'exhausted'
        break
      else
        why = 'refused'
      end
    end
    if why then
      skip(why)
    end
    cursor = id
  end
end
if stop == 'done' then
  cursor = last_of(cursor, bound)
end

-- The counts by reason as text, added to those in `before`.
local function render_skipped(before)
  local counts, words = {}, {}
  for why, count in string.gmatch(before, '(%S+)=(%d+)') do
    counts[why] = number_or_zero(count)
  end
  for why, count in pairs(skipped) do
    counts[why] = (counts[why] or 0) + count
  end
  for why, count in pairs(counts) do
    words[#words + 1] = why .. '=' .. text(count)
  end
  table.sort(words)
  return table.concat(words, ' ')
end

if #moved > 0 then
  redis.call('XDEL', source, unpack(moved))
  if action == 'discarded' then
    redis.call('HSET', state, 'owned:discarded', '1')
  end
end
local changed = { cursor = cursor, skipped = render_skipped(record.skipped) }
if #moved > 0 then
  changed.moved, changed.moved_ms = text(moved_before + #moved), text(now)
  changed.first, changed.last = record.first ~= '' and record.first or first, last
end
if rate then
  changed.bucket = text(tokens - 1000 * #moved) .. ' ' .. text(now)
end
write_redrive(state, redrive, name, now, changed)
if #moved > 0 then
  redis.call('XADD', ledger, '*', unpack(ledger_event(action, {
    stream = source, target = target, redrive = name .. '/' .. redrive, requested_by = requested_by, actor = actor,
  }, event)))
  redis.call('HSET', state, total_name, text(number_or_zero(held[2]) + #moved))
end
for field, value in pairs(changed) do
  record[field] = value
end
local wait_ms = 0
if stop == 'rate' then
  -- Wait until the rate allows the dead letters of a tenth of a second, or all that are left.
  local wanted = math.min(left, math.max(1, math.floor(rate / 10)))
  wait_ms = math.max(1, math.ceil((1000 * wanted - tokens + 1000 * #moved) / rate))
end
return { 'done', stop, wait_ms, #moved, render_skipped(''), render_redrive(record, now) }
