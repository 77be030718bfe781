-- include: ledger
-- Events that workers record: in the form of the ledger, in a stream of their own. The ledger is the
-- operator's record, and workers cannot write it. Any client with the rights of a worker can write these.

local MOST_EVENTS = 100000 -- about; where no operator trims them by age, the oldest go

local function add_worker_event(worker_ledger, event)
  redis.call('XADD', worker_ledger, 'MAXLEN', '~', MOST_EVENTS, '*', unpack(event))
end
