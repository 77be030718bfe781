-- include: entry
-- include: ids
-- include: stream
-- include: body
-- Count copies of a redrive among the undelivered, pending or delivered entries of a group, a page at
-- a time. Observe the stream and the group at the same instant.
--
-- KEYS     source  (the stream, or the retry stream)
-- ARGV     group, prefix, mark (of the redrive's copies), part (undelivered, pending or delivered), start (the
--          first ID to read), last (ID of the redrive's last copy: later ones are copies of copies),
--          most: number (entries to read)
-- READS    type source; xinfo|groups source; xinfo|stream source; xpending source; xrange source
-- WRITES   none
-- USER     operator
-- Costs  linear in what is read: `most` entries, 256 KiB of bodies but at least one, and two
--        bodies that XINFO STREAM reads. XINFO GROUPS is linear in the groups.
-- Repeats safely: it writes nothing.

local seen = see_stream(source)
local ours = seen and see_group(source, group)
if not ours then
  return { 'no-group' }
end

local redrive_name, root_name = prefix .. 'redrive', prefix .. 'original_id'
local function is_copy(fields)
  local n = #fields
  return n >= 8 and fields[n - 7] == redrive_name and fields[n - 6] == mark and fields[n - 3] == root_name
end

local copies, originals, visited, bytes, reached, following = 0, 0, 0, 0, '', ''
local function look_at(entry)
  bytes, visited, reached = bytes + size_of_body(entry[2]), visited + 1, entry[1]
  if is_copy(entry[2]) then
    copies = copies + 1
    originals = originals + (comes_before(last, reached) and 0 or 1)
  end
end

local total
if part == 'pending' then
  total = ours['pending']
  local found = redis.call('XPENDING', source, group, start, '+', most)
  for _, pending in ipairs(found) do
    if bytes > MOST_BYTES then
      break
    end
    local entry = redis.call('XRANGE', source, pending[1], pending[1])[1]
    look_at(entry or { pending[1], {} })
    if not entry and not comes_before(last, pending[1]) then
      copies = copies + 1 -- its body was deleted, so it may have been one
    end
  end
  following = (visited < #found or #found == most) and id_after(reached) or ''
else
  total = ours['lag']
  local position, is_ahead = ours['last-delivered-id'], part == 'undelivered'
  local at, to = is_ahead and last_of(start, id_after(position)) or start, is_ahead and '+' or position
  local page, largest, is_end = 1, 1, false
  while not is_end and visited < most and bytes < MOST_BYTES do
    local found = redis.call('XRANGE', source, at, to, 'COUNT', page)
    for _, entry in ipairs(found) do
      local before = bytes
      look_at(entry)
      largest = math.max(largest, bytes - before)
    end
    is_end = #found < page
    at = is_end and '' or id_after(found[#found][1])
    page = math.max(1, math.min(2 * page, 50, most - visited, math.floor((MOST_BYTES - bytes) / largest)))
  end
  following = at
end
-- Entries before `start` are counted in it as well.
local unvisited = total and total >= 0 and math.max(0, total - visited) or false
return {
  'done', copies, visited, following == '' and 0 or unvisited, following, originals,
  {
    ours['last-delivered-id'], seen['entries-added'] or 0, seen['length'], seen['first-id'] or false,
    seen['max-deleted-entry-id'] or '0-0',
  },
}
