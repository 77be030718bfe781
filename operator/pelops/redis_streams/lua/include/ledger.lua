-- include: entry
-- include: ledger_fields
-- An event of the ledger. The fields of each kind, and the words about an entry, are declared in
-- pelops/domain/ledger.py.

-- What XADD writes of an event: its fields in their order, but for those that are nil; one that is a
-- table is repeated. Then an ID and its words for each entry.
local function ledger_event(kind, told, entries)
  local event = { 'kind', kind }
  local function add(name, value)
    event[#event + 1] = name
    event[#event + 1] = value
  end
  for name in string.gmatch(ledger_fields(kind), '%S+') do
    if type(told[name]) == 'table' then
      for _, value in ipairs(told[name]) do
        add(name, value)
      end
    elseif told[name] then
      add(name, told[name])
    end
  end
  for _, part in ipairs(entries or {}) do
    event[#event + 1] = part
  end
  return event
end
