-- include: entry
-- include: ledger_fields
-- Events of the ledger. pelops/domain/records/ledger.py declares the fields of each kind, and the words about an
-- entry.

-- The arguments of XADD for an event: its fields in their declared order, without those that are nil. A
-- table gives one field for each of its values. Then an ID and its words for each entry.
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
