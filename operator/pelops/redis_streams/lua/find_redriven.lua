-- include: entry
-- include: ids
-- include: stream
-- include: body
-- Count copies that a redrive made among a group's undelivered or pending entries, a page at a time.
--
-- KEYS     source  (the stream, or the retry stream)
-- ARGV     group, prefix, mark (of the redrive's copies), part (undelivered or pending), start (the first ID
--          to look at), most: number
-- READS    type source; xinfo|groups source; xpending source; xrange source
-- WRITES   none
-- USER     operator
-- RETURNS  done copies, visited, unvisited (entries of this part that may follow, or false: not known), next
--               (where to go on, or '' at the end), last (ID that was looked at, or '')
--          | no-group
-- Costs  linear in what is looked at: most entries, 256 KiB of bodies, though always one. XINFO GROUPS is
--        linear in the groups.
-- Repeats safely: it writes nothing.

local ours = redis.call('TYPE', source).ok == 'stream' and see_group(source, group)
if not ours then
  return { 'no-group' }
end

local redrive_name, root_name = prefix .. 'redrive', prefix .. 'original_id'
local function is_copy(fields)
  local n = #fields
  return n >= 8 and fields[n - 7] == redrive_name and fields[n - 6] == mark and fields[n - 3] == root_name
end

local copies, visited, bytes, last, following = 0, 0, 0, '', ''
local function look_at(entry)
  bytes, visited, last = bytes + size_of_body(entry[2]), visited + 1, entry[1]
  if is_copy(entry[2]) then
    copies = copies + 1
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
  end
  following = (visited < #found or #found == most) and id_after(last) or ''
else
  total = ours['lag']
  local at = last_of(start, id_after(ours['last-delivered-id']))
  local page, largest, is_end = 1, 1, false
  while not is_end and visited < most and bytes < MOST_BYTES do
    local found = redis.call('XRANGE', source, at, '+', 'COUNT', page)
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
-- What was before `start` is in it as well.
local unvisited = total and total >= 0 and math.max(0, total - visited) or false
return { 'done', copies, visited, following == '' and 0 or unvisited, following, last }
