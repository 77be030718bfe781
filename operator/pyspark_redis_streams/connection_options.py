"""The options that say where the servers are and how to be let in; every use has them."""

from __future__ import annotations

from pyspark_redis_streams.option import EVERY_USE, EVERY_VIEW, Option
from pyspark_redis_streams.option_kinds import FLAG, NAMES, PORT, TEXT, Kind, choice, whole


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
