-- include: ledger
-- What a worker says that it did: events as the ledger has them, in a stream of the workers' own. The
-- ledger is the operator's record, which workers cannot write; these are claims of whoever may work.

local MOST_EVENTS = 100000 -- about; where no operator trims them by age, the oldest go

local function add_worker_event(worker_ledger, event)
  redis.call('XADD', worker_ledger, 'MAXLEN', '~', MOST_EVENTS, '*', unpack(event))
end
