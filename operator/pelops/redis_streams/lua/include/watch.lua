-- include: entry
-- include: ids
-- include: stream
-- include: ledger
-- Entries that are removed between two observations. Trimming removes the oldest entries, and Redis does
-- not record whether they were delivered to a group. So each observation compares the counters of the
-- stream with those of the one before. Of the IDs between the two positions of the group:
--
--     no entry was removed            the group was given all of them
--     entries may have been removed   they may be lost
--
-- The observation is one field of the state, `watch`, with which all replicas of the operator compare.
-- Its words, `-` for one that is not known:
--
--     from        what lies after it, up to `position`, was delivered before it was removed
--     position    last-delivered-id of the group
--     removed     entries that were ever removed from the stream, by others than this group's operator
--                 since: trim_stream adds what it removes, which no group needs
--     first       ID of the first entry
--     added, generated    of the stream
--     ahead       entries after the position, if none was ever removed there and it is known how many
--     whole       1 when no entry after the position was ever removed, else 0
--     reported    a loss up to this ID was recorded, or was there before the watch began
--     replid      of the master
--     gap_after, gap_before, gap_most    a possible loss that the ledger does not have yet: between
--                 which IDs, and how many entries at most
--     recorded_ms    when the ledger got the last one

local WATCH_WORDS = { 'from', 'position', 'removed', 'first', 'added', 'generated', 'ahead', 'whole',
  'reported', 'replid', 'gap_after', 'gap_before', 'gap_most', 'recorded_ms' }
local WATCH_NUMBERS = { removed = true, added = true, ahead = true, gap_most = true, recorded_ms = true }
local WATCH_NEEDS = { 'from', 'position', 'removed', 'added', 'generated', 'reported' }

-- The observation before, by its words; nil when there was none, or it is damaged.
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

-- No entry after this ID was ever removed. Of a stream as see_stream reports it.
local function highest_removed(seen)
  if seen['entries-added'] <= seen['length'] then
    return '0-0'
  end
  local below = seen['first-id'] and id_before(seen['first-id']) or seen['last-generated-id']
  return last_of(below, seen['max-deleted-entry-id'] or '0-0')
end

-- Whether counters and position went on from where they were, on the same server.
local function goes_on(known, seen, position, replid)
  return not (comes_before(position, known['position'])
    or comes_before(seen['last-generated-id'], known['generated'])
    or seen['entries-added'] < known['added']
    or seen['entries-added'] - seen['length'] < known['removed']
    or (replid and known['replid'] and replid ~= known['replid'])
    -- Its first entry is another one, though none was removed: it was made anew.
    or (seen['entries-added'] - seen['length'] == known['removed']
      and known['first'] and known['first'] ~= seen['first-id']))
end

-- How many entries after the last position were removed since; nil when that is not known. While an
-- entry up to that position is left, trimming has not come so far.
local function count_removed(known, seen)
  local first = seen['first-id']
  if not known['ahead'] or (first and not comes_before(known['position'], first)) then
    return nil
  end
  return known['ahead'] + seen['entries-added'] - known['added'] - seen['length']
end

-- A possible loss beside one that the ledger does not have yet: one range holds both.
local function note_gap(watch, after, before, most)
  if watch['gap_after'] then
    watch['gap_most'] = watch['gap_most'] and most and watch['gap_most'] + most or nil
  else
    watch['gap_after'], watch['gap_most'] = after, most
  end
  watch['gap_before'] = before
end

-- The observation of a stream and of a group's position in it, compared with the one before (`known`,
-- or nil). A stream or a position that did not go on begins a new watch.
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
      -- A user who deletes an entry (XDEL) names it: that is no loss, as everywhere.
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

-- Write a possible loss into the ledger when it is time; what was written, or nil. The first is
-- written at once, and what follows within `pause_ms` with the next checkpoint.
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
