-- include: entry
-- include: ids
-- include: stream
-- include: ledger
-- Detect entries that were removed between two observations. Trimming removes the oldest entries, and Redis
-- does not record whether they were delivered to a group. So each observation compares the counters of the
-- stream with those of the previous one, and looks at the IDs between the two positions of the group:
--
--     no entry was removed            all of them were delivered
--     entries may have been removed   these may be lost
--
-- The observation is the field `watch` of the state, so that all replicas of the operator compare with the
-- same one. Its words (`-`: not known):
--
--     from        entries after it, up to `position`, were delivered before they were removed.
--     position    last-delivered-id of the group.
--     removed     number of entries that were ever removed from the stream. trim_stream adds what it removes
--                 after the observation, because no group needs those entries.
--     first       ID of the first entry.
--     added, generated    entries-added and last-generated-id of the stream.
--     ahead       number of entries after the position, if it is known and none was ever removed there.
--     whole       1 if no entry after the position was ever removed, else 0.
--     reported    losses up to this ID were recorded, or happened before the watch began.
--     replid      replication ID of the master.
--     gap_after, gap_before, gap_most    a possible loss that is not in the ledger yet: the IDs between
--                 which it lies, and the maximum number of entries.
--     recorded_ms    when a possible loss was last written to the ledger.

local WATCH_WORDS = { 'from', 'position', 'removed', 'first', 'added', 'generated', 'ahead', 'whole',
  'reported', 'replid', 'gap_after', 'gap_before', 'gap_most', 'recorded_ms' }
local WATCH_NUMBERS = { removed = true, added = true, ahead = true, gap_most = true, recorded_ms = true }
local WATCH_NEEDS = { 'from', 'position', 'removed', 'added', 'generated', 'reported' }

-- The previous observation by the names of its words; nil if it does not exist or is damaged.
local function read_watch(field)
  local watch, at = {}, 0
  for word in string.gmatch(field or '', '%S+') do
    at = at + 1
    local name = WATCH_WORDS[at]
    if not name then
      return nil
    elseif word ~= '-' and (WATCH_NUMBERS[name] or name == 'whole') then
      watch[name] = #word <= 15 and string.find(word, '^%d+$') and tonumber(word) or nil
    elseif word ~= '-' and (name == 'replid' or is_id(word)) then
      watch[name] = word
    end
  end
  for _, name in ipairs(WATCH_NEEDS) do
    if not watch[name] then
      return nil
    end
  end
  if not (watch['gap_after'] and watch['gap_before']) then
    watch['gap_after'], watch['gap_before'], watch['gap_most'] = nil, nil, nil
  end
  return watch
end

local function write_watch(state, watch)
  local words = {}
  for at, name in ipairs(WATCH_WORDS) do
    local word = watch[name]
    words[at] = not word and '-' or type(word) == 'number' and text(word) or word
  end
  redis.call('HSET', state, 'watch', table.concat(words, ' '))
end

-- An ID after which no entry was ever removed. `seen` is the stream as see_stream returns it.
local function highest_removed(seen)
  if seen['entries-added'] <= seen['length'] then
    return '0-0'
  end
  local below = seen['first-id'] and id_before(seen['first-id']) or seen['last-generated-id']
  return last_of(below, seen['max-deleted-entry-id'] or '0-0')
end

-- Whether this observation continues the previous one: neither the counters nor the position went back, and
-- the master is the same.
local function goes_on(known, seen, position, replid)
  return not (comes_before(position, known['position'])
    or comes_before(seen['last-generated-id'], known['generated'])
    or seen['entries-added'] < known['added']
    or seen['entries-added'] - seen['length'] < known['removed']
    or (replid and known['replid'] and replid ~= known['replid'])
    -- The first entry is another one although none was removed: the stream was created again.
    or (seen['entries-added'] - seen['length'] == known['removed']
      and known['first'] and known['first'] ~= seen['first-id']))
end

-- How many entries after the previous position were removed since then. Returns nil if that is not known, or
-- if an entry up to that position is left: then trimming has not reached the position.
local function count_removed(known, seen)
  local first = seen['first-id']
  if not known['ahead'] or (first and not comes_before(known['position'], first)) then
    return nil
  end
  return known['ahead'] + seen['entries-added'] - known['added'] - seen['length']
end

-- Add a possible loss to one that is not in the ledger yet, as one range that covers both.
local function note_gap(watch, after, before, most)
  if watch['gap_after'] then
    watch['gap_most'] = watch['gap_most'] and most and watch['gap_most'] + most or nil
  else
    watch['gap_after'], watch['gap_most'] = after, most
  end
  watch['gap_before'] = before
end

-- Compare a stream and a group's position in it with the previous observation (`known`, or nil), and return
-- the new observation. The watch begins again if it does not continue the previous one.
local function compare_watch(known, seen, position, replid)
  local first, highest = seen['first-id'], highest_removed(seen)
  local watch = {
    position = position, removed = seen['entries-added'] - seen['length'], first = first,
    added = seen['entries-added'], generated = seen['last-generated-id'],
    replid = replid or (known and known['replid']),
  }
  for _, name in ipairs({ 'gap_after', 'gap_before', 'gap_most', 'recorded_ms' }) do
    watch[name] = known and known[name]
  end
  local is_whole = not comes_before(position, highest)
  if not known or not goes_on(known, seen, position, replid) then
    watch['from'] = known and last_of(position, known['generated']) or position
    watch['reported'] = highest
  else
    local missing = count_removed(known, seen)
    local was_whole = not comes_before(known['position'], highest)
      or (known['whole'] == 1 and (watch['removed'] == known['removed'] or missing == 0))
    watch['from'], watch['reported'] = known['from'], known['reported']
    if not was_whole and comes_before(known['position'], position) then
      local upto = first_of(position, highest)
      watch['from'] = last_of(known['from'], upto)
      local after = last_of(known['position'], known['reported'])
      -- An entry that a user deleted by its ID (XDEL) does not count as a loss.
      local deleted = seen['max-deleted-entry-id'] or '0-0'
      if not comes_before(known['position'], deleted) and comes_before(after, upto) then
        note_gap(watch, after, id_after(upto), missing and missing > 0 and missing or nil)
      end
    end
    is_whole = is_whole or was_whole
    if position == known['position'] and was_whole and known['ahead'] then
      watch['ahead'] = known['ahead'] + seen['entries-added'] - known['added']
    end
  end
  if not comes_before(position, seen['last-generated-id']) then
    is_whole, watch['ahead'] = true, 0
  elseif is_whole and first and comes_before(position, first) then
    watch['ahead'] = seen['length']
  end
  watch['whole'] = is_whole and 1 or 0
  return watch
end

-- Write a possible loss to the ledger if it is due, and return what was written, or nil. The first one is
-- written at once, and further ones within `pause_ms` with the next checkpoint.
local function record_gap(ledger, watch, now, pause_ms, is_checkpoint)
  local last = watch['recorded_ms']
  local is_early = last and last <= now and now - last < pause_ms
  if not watch['gap_after'] or (is_early and not is_checkpoint) then
    return nil
  end
  local gap = {
    at_least = '0', at_most = watch['gap_most'] and text(watch['gap_most']) or '',
    after = watch['gap_after'], before = watch['gap_before'], cause = 'trimmed',
    undelivered = '0', pending = '0', observed_ms = '',
  }
  redis.call('XADD', ledger, '*', unpack(ledger_event('data-loss', gap)))
  watch['gap_after'], watch['gap_before'], watch['gap_most'] = nil, nil, nil
  watch['recorded_ms'] = now
  return gap
end
