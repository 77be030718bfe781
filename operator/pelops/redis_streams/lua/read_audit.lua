-- What an audit recorded about a group, and what a person has acknowledged of it.
--
-- KEYS     audit
-- ARGV     fields... (to read)
-- READS    type audit; hmget audit
-- WRITES   none
-- USER     operator
-- RETURNS  {values...} (of the fields, each or false; for a key that is no hash, its type instead)
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
