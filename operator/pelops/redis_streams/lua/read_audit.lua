-- What an audit recorded about a group, and what a person has acknowledged of it.
--
-- KEYS  audit
-- ARGV  fields to read
-- Returns  the values of the fields, each or false; or, for a key that is no hash, its type
-- Costs  linear in the fields; at most the largest summary (16 KiB).
-- Repeats safely: it writes nothing.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' then
  return redis.call('HMGET', KEYS[1], unpack(ARGV))
end
if kind == 'none' then
  return {}
end
return kind
