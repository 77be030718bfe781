-- include: entry
-- include: ids
-- Write down what a sweep found, and forget what need not be remembered any more.
--
-- KEYS  stream, state  (same slot; the stream to which copies go)
-- ARGV  group, uid, report, cursor, scan (empty: do not look for tries to forget), then (field, value) ...
--       of what was learnt about consumers
-- Returns  verdict: done, next scan | not-owner | wrong-type key type | no-permission command key
-- Costs  linear in the fields given, and in 100 fields of the state when it scans.
-- Repeats safely: the same words are written again.

local stream, state = KEYS[1], KEYS[2]
local group, uid, report, cursor, scan = unpack(ARGV, 1, 5)
local refusal = find_wrong_type(KEYS, { 'stream', 'hash' })
  or find_forbidden({ { 'HSET', state, 'f', 'v' }, { 'HDEL', state, 'f' } })
if refusal then
  return refusal
end
local held = redis.call('HMGET', state, 'owner:uid', 'sweep:report', 'sweep:cursor', 'chunk')
if held[1] ~= uid then
  return { 'not-owner' }
end
if held[2] ~= report then
  redis.call('HSET', state, 'sweep:report', report)
end
if (held[3] or '') ~= cursor then
  redis.call('HSET', state, 'sweep:cursor', cursor)
end
for i = 6, #ARGV, 2 do
  redis.call('HSET', state, ARGV[i], ARGV[i + 1])
end
local next_scan = '0'
if scan ~= '' then
  local found = redis.call('HSCAN', state, scan, 'MATCH', 'try:*', 'COUNT', 100)
  next_scan = found[1]
  for i = 1, #found[2], 2 do
    local id = string.sub(found[2][i], 5)
    if not is_id(id) then
      redis.call('HDEL', state, found[2][i])
    elseif not is_pending(stream, group, id) then
      local waits = redis.call('XRANGE', stream, id, id)
      local groups = redis.call('XINFO', 'GROUPS', stream)
      local delivered
      for _, reply in ipairs(groups) do
        if reply[2] == group then
          for f = 1, #reply, 2 do
            delivered = reply[f] == 'last-delivered-id' and reply[f + 1] or delivered
          end
        end
      end
      if #waits == 0 or (delivered and not comes_before(delivered, id)) then
        redis.call('HDEL', state, found[2][i])
      end
    end
  end
end
return { 'done', next_scan }
