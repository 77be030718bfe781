-- Return what an audit recorded about a group, and what a user has acknowledged of it.
--
-- KEYS     audit
-- ARGV     fields... (to read)
-- READS    type audit; hmget audit
-- WRITES   none
-- USER     operator
-- Returns the fields, each or false; none if the key does not exist. If the key is not a hash, returns its
-- type instead.
-- Costs  linear in the fields; at most the largest summary (16 KiB).
-- Repeats safely: it writes nothing.

local kind = redis.call('TYPE', audit).ok
if kind == 'hash' then
  return redis.call('HMGET', audit, unpack(fields))
end
if kind == 'none' then
  return {}
end
return kind
