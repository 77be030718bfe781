-- Return which of several commands the ACL forbids to this user. Writes nothing and runs none of them.
--
-- KEYS     none (a forbidden key among them would forbid the script too)
-- ARGV     words... (for each command: the number of its words, then its words)
-- READS    none
-- WRITES   none
-- USER     operator sdk-worker
-- Returns the position of the first forbidden command, from 1; 0 if none is, or the server cannot check it.
-- Costs  constant for each command.
-- Repeats safely: it writes nothing.

if not redis.acl_check_cmd then
  return 0
end

local place, at = 0, 1
while at <= #words do
  local count = tonumber(words[at])
  place = place + 1
  -- A command that this server does not know raises an error, and does not count as forbidden.
  local is_known, may = pcall(redis.acl_check_cmd, unpack(words, at + 1, at + count))
  if is_known and not may then
    return place
  end
  at = at + count + 1
end
return 0
