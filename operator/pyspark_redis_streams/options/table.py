"""The options: one table from which they are checked, documented and tested."""

from __future__ import annotations

from pyspark_redis_streams.options.kinds import (
    FLAG,
    MOMENT,
    NAMES,
    PORT,
    SPAN,
    TEXT,
    ZONE,
    Kind,
    choice,
    choices,
    whole,
)
from pyspark_redis_streams.options.option import EVERY_USE, EVERY_VIEW, Alias, Option, Use, View


def _connection(name: str, kind: Kind, default: str | None, sentence: str) -> Option:
    return Option(
        name=name,
        kind=kind,
        default=default,
        sentence=sentence,
        uses=EVERY_USE,
        views=EVERY_VIEW,
    )


CONNECTION = (
    _connection(
        "topology",
        choice("standalone", "sentinel", "cluster"),
        "standalone",
        "How the servers are arranged.",
    ),
    _connection(
        "url",
        TEXT,
        None,
        "`redis://user:password@host:port/db`, or `rediss://` for TLS; in place of the parts.",
    ),
    _connection("host", TEXT, "localhost", "Host of the server, or of any node of a cluster."),
    _connection("port", PORT, "6379", "Port of the server."),
    _connection("db", whole(0), "0", "Number of the database; a cluster has only 0."),
    _connection("username", TEXT, None, "ACL user."),
    _connection(
        "password",
        TEXT,
        None,
        "Password in plain text, which Spark writes into plans and logs: better a file.",
    ),
    _connection(
        "passwordEnv",
        TEXT,
        None,
        "Environment variable, on driver and executors, that holds the password.",
    ),
    _connection(
        "passwordFile", TEXT, None, "File, on driver and executors, that holds the password."
    ),
    _connection("sentinels", NAMES, None, "Sentinels as `host:port,host:port`."),
    _connection("sentinelMaster", TEXT, None, "Name under which the Sentinels watch the master."),
    _connection("sentinelUsername", TEXT, None, "ACL user at the Sentinels."),
    _connection(
        "sentinelPasswordEnv",
        TEXT,
        None,
        "Environment variable that holds the password of the Sentinels.",
    ),
    _connection(
        "sentinelPasswordFile", TEXT, None, "File that holds the password of the Sentinels."
    ),
    _connection("tls", FLAG, "false", "Speak TLS, with the Sentinels as well."),
    _connection(
        "tlsCaFile", TEXT, None, "Certificates to trust (PEM); default those of the system."
    ),
    _connection("tlsCertFile", TEXT, None, "Certificate of the client (PEM)."),
    _connection("tlsKeyFile", TEXT, None, "Key of the client's certificate (PEM)."),
    _connection(
        "tlsVerify",
        choice("full", "certificate", "none"),
        "full",
        "What is checked: certificate and host name, the certificate alone, or nothing.",
    ),
    _connection(
        "readFrom",
        choice("master", "replica"),
        "master",
        "Read entries from a replica that has them already, else from the master.",
    ),
    _connection("connectTimeoutMs", whole(1), "5000", "Longest wait for a connection."),
    _connection("readTimeoutMs", whole(1), "30000", "Longest wait for a reply."),
    _connection(
        "numRetries",
        whole(0, 1000),
        "8",
        "How often a read is repeated when the server is away or has moved.",
    ),
    _connection(
        "retryIntervalMs",
        whole(1),
        "200",
        "First wait before a repetition; doubles each time, up to 5 s, with jitter.",
    ),
)


SELECTION = (
    Option(
        name="stream",
        kind=TEXT,
        default=None,
        uses=EVERY_USE,
        views=EVERY_VIEW,
        sentence='The stream; `load("orders")` and `save("orders")` say the same.',
    ),
    Option(
        name="streams",
        kind=NAMES,
        default=None,
        views=EVERY_VIEW,
        sentence="Several streams: `a,b` or a JSON list.",
        kafka=Alias(name="subscribe", kind=NAMES),
    ),
    Option(
        name="streamPattern",
        kind=TEXT,
        default=None,
        views=EVERY_VIEW,
        sentence="Streams whose name fits a glob, as in `SCAN MATCH`.",
    ),
    Option(
        name="path",
        kind=TEXT,
        default=None,
        uses=EVERY_USE,
        views=EVERY_VIEW,
        sentence="The same as `stream`: this is how Spark hands on what `load` was given.",
    ),
    Option(
        name="paths",
        kind=NAMES,
        default=None,
        views=EVERY_VIEW,
        sentence='The same as `streams`: this is how Spark hands on `load(["a", "b"])`.',
    ),
    Option(
        name="view",
        kind=choice(*View),
        default="entries",
        views=EVERY_VIEW,
        sentence="What the rows are; a streaming read has `entries` only.",
    ),
    Option(
        name="missingStream",
        kind=choice("fail", "empty"),
        default="fail",
        views=EVERY_VIEW,
        sentence="Whether a stream that does not exist is an error or has no entries.",
    ),
)


_RANGE = (
    Option(
        name="startingId",
        kind=TEXT,
        default=None,
        sentence="`earliest`, `latest`, an ID (included), `(ID` (excluded), or JSON"
        ' `{"stream": ID}`; default `earliest`, of a streaming read `latest`.',
        kafka=Alias(name="startingOffsets", kind=choice("earliest", "latest")),
    ),
    Option(
        name="startingTimestamp",
        kind=MOMENT,
        default=None,
        sentence="Entries from this time on, by the milliseconds of their IDs.",
    ),
    Option(
        name="endingId",
        kind=TEXT,
        default=None,
        uses=frozenset({Use.READ}),
        sentence="`latest`, an ID (included), `(ID` (excluded), or JSON; default `latest`, as of"
        " planning.",
        kafka=Alias(name="endingOffsets", kind=choice("latest")),
    ),
    Option(
        name="endingTimestamp",
        kind=MOMENT,
        default=None,
        uses=frozenset({Use.READ}),
        sentence="Entries before this time.",
    ),
    Option(
        name="timeZone",
        kind=ZONE,
        default=None,
        sentence="Zone of a `startingTimestamp` or `endingTimestamp` that names none: that of the"
        " session, to agree with filters on `ts`.",
    ),
    Option(
        name="failOnDataLoss",
        kind=FLAG,
        default="true",
        sentence="Fail when entries of the range were trimmed before they were read, or the"
        " stream went back (failover, deletion).",
    ),
)

_SCHEMA = (
    Option(
        name="columns",
        kind=TEXT,
        default=None,
        sentence="Fields to read as columns, as `name TYPE, ...`; they follow the base columns."
        " A schema given to `.schema(...)` says the same and chooses the base columns too.",
    ),
    Option(
        name="fieldPrefix",
        kind=TEXT,
        default=None,
        uses=EVERY_USE,
        sentence="Column `<prefix>x` reads, or writes, field `x`: for fields named as a base"
        " column.",
    ),
    Option(
        name="computed",
        kind=choices("hash", "bytes", "root"),
        default=None,
        sentence="Columns computed from all fields, so that payloads need not be read:"
        " a hash, the size, the ID of the entry that a copy goes back to.",
    ),
    Option(
        name="mode",
        kind=choice("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
        default="PERMISSIVE",
        sentence="What happens to an entry with a value that does not fit its column: null"
        " there, no row, or an error.",
    ),
    Option(
        name="columnNameOfCorruptRecord",
        kind=TEXT,
        default="_corrupt_record",
        sentence="String column that receives such an entry as JSON, if the schema has it.",
    ),
    Option(
        name="duplicateFields",
        kind=choice("last", "first", "keep"),
        default="last",
        sentence="Which value counts when an entry repeats a field; `keep` makes `fields` an"
        " array of name and value.",
    ),
    Option(
        name="timestampUnit",
        kind=choice("s", "ms", "us"),
        default="ms",
        sentence="Unit of timestamps that are written as whole numbers.",
    ),
)

_PACE = (
    Option(
        name="minPartitions",
        kind=whole(1, 100_000),
        default=None,
        sentence="At least about so many tasks, while there are entries enough.",
    ),
    Option(
        name="entriesPerPartition",
        kind=whole(1),
        default="500000",
        sentence="About so many entries for one task.",
    ),
    Option(
        name="pageSize",
        kind=whole(1, 100_000),
        default="2000",
        views=EVERY_VIEW,
        sentence="Most entries for one call; fewer when they are large or have many fields.",
    ),
    Option(
        name="batchRows",
        kind=whole(1, 1_000_000),
        default="10000",
        sentence="Most rows of one Arrow batch handed to Spark.",
    ),
    Option(
        name="maxEntriesPerSecond",
        kind=whole(1),
        default=None,
        uses=EVERY_USE,
        sentence="Most entries that one task reads, or appends, in a second.",
    ),
    Option(
        name="pushdown",
        kind=FLAG,
        default="false",
        uses=frozenset({Use.READ}),
        sentence="Let filters on `id`, `ms`, `ts` and `stream` narrow the read, on a Spark that"
        " keeps narrowed reads apart (none up to 4.3: there it has no effect) and with"
        " `spark.sql.python.filterPushdown.enabled`.",
    ),
)

_STREAMING = (
    Option(
        name="maxEntriesPerTrigger",
        kind=whole(1),
        default=None,
        uses=frozenset({Use.STREAM}),
        sentence="Most entries of one micro-batch, over all streams.",
        kafka=Alias(name="maxOffsetsPerTrigger", kind=whole(1)),
    ),
    Option(
        name="limitMode",
        kind=choice("exact", "estimate"),
        default="exact",
        uses=frozenset({Use.STREAM}),
        sentence="Whether the driver walks the entries to find where that many end (1 µs each),"
        " or guesses it from their density.",
    ),
    Option(
        name="minEntriesPerTrigger",
        kind=whole(1),
        default=None,
        uses=frozenset({Use.STREAM}),
        sentence="Wait for so many entries before a micro-batch, up to `maxTriggerDelayMs`.",
        kafka=Alias(name="minOffsetsPerTrigger", kind=whole(1)),
    ),
    Option(
        name="maxTriggerDelayMs",
        kind=whole(1),
        default="900000",
        uses=frozenset({Use.STREAM}),
        sentence="Longest wait for `minEntriesPerTrigger`.",
        kafka=Alias(name="maxTriggerDelay", kind=SPAN),
    ),
    Option(
        name="progressGroup",
        kind=TEXT,
        default=None,
        uses=frozenset({Use.STREAM}),
        sentence="A consumer group that is moved to what the query has finished, so that"
        " `XINFO GROUPS` shows its lag.",
    ),
)

_OTHER_VIEWS = (
    Option(
        name="group",
        kind=TEXT,
        default=None,
        views=frozenset({View.PENDING, View.CONSUMERS, View.GROUPS}),
        sentence="The consumer group; of `groups` and `consumers` default all.",
    ),
    Option(
        name="consumer",
        kind=TEXT,
        default=None,
        views=frozenset({View.PENDING}),
        sentence="Pending entries of this consumer alone.",
    ),
    Option(
        name="minIdleMs",
        kind=whole(0),
        default="0",
        views=frozenset({View.PENDING}),
        sentence="Pending entries whose last delivery is at least so long ago.",
    ),
)

_WRITE = frozenset({Use.WRITE})
_WRITING = (
    Option(
        name="entriesPerCall",
        kind=whole(1, 10_000),
        default="200",
        uses=_WRITE,
        sentence="Entries appended by one call; Redis serves nobody else meanwhile.",
    ),
    Option(
        name="maxLen",
        kind=whole(0),
        default=None,
        uses=_WRITE,
        sentence="Trim the stream to about so many entries, whether or not they were read.",
    ),
    Option(
        name="minId",
        kind=TEXT,
        default=None,
        uses=_WRITE,
        sentence="Trim about all entries below this ID.",
    ),
    Option(
        name="writeId",
        kind=TEXT,
        default=None,
        uses=_WRITE,
        sentence="Name of a batch write: under the same name the same rows are appended once, even"
        " by another run. A streaming write has the name of its query and micro-batch.",
    ),
    Option(
        name="tokenTtlSeconds",
        kind=whole(60),
        default="604800",
        uses=_WRITE,
        sentence="How long the stream's server remembers what a write has appended.",
    ),
)

OPTIONS: tuple[Option, ...] = (
    *SELECTION,
    *CONNECTION,
    *_RANGE,
    *_SCHEMA,
    *_PACE,
    *_STREAMING,
    *_OTHER_VIEWS,
    *_WRITING,
)
