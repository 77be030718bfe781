-- include: entry
-- include: stream
-- include: ahead
-- Tell the server how many entries a group was given, where it lost count and the number is certain.
--
-- KEYS  stream, state  (same slot; the stream itself or the group's retry stream)
-- ARGV  group, uid
-- Returns  verdict, then
--            repaired  lag
--            intact    the server's number is right already
--            unsure    too many entries to count, or one that was deleted lies at the position or ahead
--                      of it: then the server believes no number
--            not-owner | no-group key | wrong-type key type | no-permission command key
-- Costs  as a deep look of observe_group.lua.
-- Neither the position nor what is pending changes, and the position that is set is the one that was
-- read in this very script. A group at the end is told too: its lag would be unknown with the next
-- entry otherwise.
-- Repeats safely: a second run finds the number right.

local stream, state = unpack(KEYS)
local group, uid = ARGV[1], ARGV[2]

local refusal = find_wrong_type(KEYS, { 'stream', 'hash' })
  or find_forbidden({ { 'XRANGE', stream, '-', '+' } })
if refusal then
  return refusal
end
-- Not every server that speaks the protocol has this function; the write itself tells then.
if redis.acl_check_cmd
  and not redis.acl_check_cmd('XGROUP', 'SETID', stream, group, '0-1', 'ENTRIESREAD', '0') then
  return { 'no-permission', 'xgroup|setid', stream }
end
if redis.call('HMGET', state, 'owner:uid')[1] ~= uid then
  return { 'not-owner' }
end
local seen = see_stream(stream)
local ours = seen and see_group(stream, group)
if not ours then
  return { 'no-group', stream }
end

local position, added = ours['last-delivered-id'], seen['entries-added']
local deleted = seen['max-deleted-entry-id'] or '0-0'
local is_counted_on = deleted == '0-0' or comes_before(deleted, position)
if not is_counted_on or comes_before(seen['last-generated-id'], position) then
  return { 'unsure' }
end
local remaining, is_all = count_ahead(stream, seen, position, DEEP, DEEP * 1024)
if not remaining or not is_all or remaining > added then
  return { 'unsure' }
end
local read = added - remaining
if ours['lag'] == remaining and (ours['entries-read'] == read or remaining > 0) then
  return { 'intact' }
end
redis.call('XGROUP', 'SETID', stream, group, position, 'ENTRIESREAD', text(read))
return { 'repaired', text(remaining) }
