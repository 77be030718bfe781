-- include: entry
-- include: stream
-- include: ahead
-- Record which copy waits first in the retry stream, and the position of the group in the stream.
--
-- KEYS     stream, retry, state  (same slot)
-- ARGV     group, uid, notes: flag (if not set, the note is deleted)
-- READS    type stream retry state; time; hmget state; xinfo|stream retry; xinfo|groups stream retry;
--          xpending stream retry; xrange retry
-- WRITES   hset state; hdel state
-- USER     operator for recovery
-- Costs  linear in the groups of both streams. It reads one copy, and two bodies that XINFO STREAM reads.
-- Repeats safely: a copy that was noted before keeps the time and the position of its first note. If the
-- note is lost, the alarm comes later.

local refusal = find_refusal()
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'retry:waits')
if held[1] ~= uid then
  return { 'not-owner' }
end

local main = see_group(stream, group)
local seen = see_stream(retry)
local ours = seen and see_group(retry, group)
if not main or not ours then
  return { 'no-group', main and retry or stream }
end
local _, _, first = count_ahead(retry, seen, ours['last-delivered-id'], 1, 1024)
if not notes or not first then
  redis.call('HDEL', state, 'retry:waits')
  return { 'forgotten' }
end
if held[2] and string.sub(held[2], 1, #first + 1) == first .. ' ' then
  return { 'known' }
end
redis.call('HSET', state, 'retry:waits',
  first .. ' ' .. main['last-delivered-id'] .. ' ' .. text(server_ms()))
return { 'noted' }
