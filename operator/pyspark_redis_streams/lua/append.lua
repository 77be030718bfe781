-- Append entries to a stream once, however often the same call is repeated.
--
-- KEYS  stream, tokens                        (same hash tag)
-- ARGV  token, digest, before (the token of the task's previous call, or empty), ttl_s,
--       trimming, threshold, then for each entry: n, its ID or *, n names and values
--       trimming is MAXLEN, MINID or empty.
-- Returns  appended | repeated | changed | forgotten
-- IDs ascend within a call, so only the first entry can be refused because of its ID. Then none is appended.
-- Repeats safely: the token proves that the call was made, and the digest that it was the same call.
-- Returns `forgotten` if the token of the previous call no longer exists, for example after a failover to a
-- replica that had not received it. The entries of that call are lost too, and this call appends nothing.

local token, digest, before, ttl_s, trimming, threshold = unpack(ARGV, 1, 6)

local known = redis.call('HGET', KEYS[2], token)
if known then
    redis.call('EXPIRE', KEYS[2], ttl_s)
    return known == digest and 'repeated' or 'changed'
end

if before ~= '' and not redis.call('HGET', KEYS[2], before) then
    return 'forgotten'
end

local position = 7
while position <= #ARGV do
    local last = position + 1 + tonumber(ARGV[position])
    redis.call('XADD', KEYS[1], unpack(ARGV, position + 1, last))
    position = last + 1
end

redis.call('HSET', KEYS[2], token, digest)
redis.call('EXPIRE', KEYS[2], ttl_s)
if trimming ~= '' then
    redis.call('XTRIM', KEYS[1], trimming, '~', threshold)
end
return 'appended'
