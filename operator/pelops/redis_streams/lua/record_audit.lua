-- include: entry
-- Record what an audit found about a group: its summary, the number of lost entries, and up to which
-- ID it has archived the ledger.
--
-- KEYS     audit
-- ARGV     name (of the audit), at_ms (end of the window, on the server's clock), lost (lost entries
--          that its run found), archived (ledger ID up to which all is archived, or '-'), summary,
--          limit: number (bytes of a summary), most: number (audits that may record about one group)
-- READS    type audit; time; hmget! audit
-- WRITES   hset audit
-- USER     auditor
-- Costs  constant.
-- Repeats safely: a repeated window replaces its former record, and its lost entries count once. A window
-- that ends before the recorded one changes nothing, so a manual repeat of an old window does not hide a
-- newer one. A recorded end in the future, left by another clock, is ignored.

local refusal = find_refusal()
if refusal then
  return refusal
end
if #summary > limit then
  return { 'too-large' }
end

local held = redis.call('HMGET', audit, 'totals:' .. name, 'archived')
local before_ms, before_lost, total = string.match(held[1] or '', '^(%d+) (%d+) (%d+)$')
before_ms, before_lost, total = tonumber(before_ms) or -1, tonumber(before_lost) or 0, tonumber(total) or 0
if tonumber(at_ms) < before_ms and before_ms <= server_ms() + 60000 then
  return { 'older', text(before_ms) }
end
if tonumber(at_ms) == before_ms then
  total = total - before_lost
end
total = total + tonumber(lost)

local others, count = {}, 1
for other, id in string.gmatch(held[2] or '', '(%S+) (%S+)') do
  if other ~= name then
    others[#others + 1] = other .. ' ' .. id
    count = count + 1
  elseif archived == '-' then
    archived = id -- a run that archived nothing of the ledger keeps the former ID
  end
end
if count > most then
  return { 'too-many' }
end
others[#others + 1] = name .. ' ' .. archived

redis.call('HSET', audit, name, summary, 'totals:' .. name,
  at_ms .. ' ' .. text(tonumber(lost)) .. ' ' .. text(total), 'archived', table.concat(others, ' '))
return { 'recorded', text(total) }
