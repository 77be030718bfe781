-- Look at a stream, one of its groups and our keys beside it, all at one instant. Writes nothing.
--
-- KEYS  stream, dead_letter, ledger, state              (same slot; all exist once provisioned,
--       since a slot migration answers TRYAGAIN for a declared key that is absent)
-- ARGV  group
-- Returns  {types of the four keys},
--          {server time: seconds, microseconds},
--          {XINFO STREAM without its entries} or false,
--          {XINFO GROUPS of our group alone} or false,
--          lowest pending ID or false,
--          length of dead_letter,
--          {owner: uid, cluster, namespace, name, created_ms, held_until_ms}, each or false
-- Costs  XINFO GROUPS is linear in the stream's groups; all else is constant.
-- Repeats safely: it only reads.

local function pairs_of(reply)
  local named = {}
  for i = 1, #reply, 2 do
    named[reply[i]] = reply[i + 1]
  end
  return named
end

local types = {}
for i, key in ipairs(KEYS) do
  types[i] = redis.call('TYPE', key).ok
end

local stream, group, lowest = false, false, false
if types[1] == 'stream' then
  local seen = pairs_of(redis.call('XINFO', 'STREAM', KEYS[1]))
  stream = {
    seen['length'], seen['last-generated-id'], seen['first-entry'] and seen['first-entry'][1],
    seen['entries-added'], seen['groups'],
  }
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if reply[2] == ARGV[1] then -- the name has been the first pair since groups exist
      local named = pairs_of(reply)
      group = {
        named['last-delivered-id'], named['pending'], named['lag'], named['consumers'],
        named['entries-read'],
      }
    end
  end
  if group and group[2] > 0 then
    local first = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)[1]
    lowest = first and first[1]
  end
end

local owner = {}
if types[4] == 'hash' then
  owner = redis.call('HMGET', KEYS[4], 'owner:uid', 'owner:cluster', 'owner:namespace',
    'owner:name', 'owner:created_ms', 'owner:held_until_ms')
end

return {
  types, redis.call('TIME'), stream, group, lowest,
  types[2] == 'stream' and redis.call('XLEN', KEYS[2]) or 0, owner,
}
