-- include: ledger
-- Events that workers record. They have the form of ledger events, but are in a stream of their own: the
-- ledger is the operator's record, and workers cannot write to it. Any client with a worker's rights can
-- write these events.

local MOST_EVENTS = 100000 -- approximate bound, for groups whose events no operator trims by age

local function add_worker_event(worker_ledger, event)
  redis.call('XADD', worker_ledger, 'MAXLEN', '~', MOST_EVENTS, '*', unpack(event))
end
