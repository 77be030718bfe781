-- Find what the rights of this user lack of what a worker does.
--
-- KEYS  none: a key that is forbidden would have the script refused
-- ARGV  group, me, stream, retry, handover, dead_letter, ledger, state, started
-- Returns  command, key | nothing, when all is allowed or this server cannot tell
-- Costs  little: nothing is run.
-- Repeats safely.

local group, me, stream, retry, handover = unpack(ARGV, 1, 5)
local dead_letter, ledger, state, started = unpack(ARGV, 6, 9)
local commands = {
  { 'HSET', state, 'f', 'v' }, { 'HSET', started, 'f', 'v' }, { 'HGET', started, 'f' },
  { 'HDEL', state, 'f' }, { 'HDEL', started, 'f' }, { 'HINCRBY', state, 'f', '1' },
  { 'XADD', dead_letter, '*', 'f', 'v' }, { 'XADD', ledger, '*', 'f', 'v' },
  { 'XADD', handover, '*', 'f', 'v' }, { 'TYPE', stream },
}
for _, key in ipairs({ stream, retry, handover }) do
  commands[#commands + 1] = { 'XREADGROUP', 'GROUP', group, me, 'STREAMS', key, '>' }
  commands[#commands + 1] = { 'XACK', key, group, '0-1' }
  commands[#commands + 1] = { 'XPENDING', key, group, '-', '+', '1' }
  commands[#commands + 1] = { 'XCLAIM', key, group, me, '0', '0-1' }
  commands[#commands + 1] = { 'XRANGE', key, '0-1', '0-1' }
  commands[#commands + 1] = { 'XGROUP', 'DELCONSUMER', key, group, me }
end
for _, words in ipairs(commands) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(words)) then
    local name, key = string.lower(words[1]), words[2]
    if name == 'xreadgroup' then
      key = words[6]
    elseif name == 'xgroup' then
      name, key = 'xgroup|delconsumer', words[3]
    end
    return { name, key }
  end
end
return {}
