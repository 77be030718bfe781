"""The part of PySpark's words that the audit's rules use, on Arrow tables in this process.

A window of some thousand entries is worked in milliseconds here, where each job of Spark costs a
tenth of a second and its session some seconds more. Frames are computed at once and not lazily;
rows must fit into memory. What the rules do not use is missing here, and said to be. A test audits
the same histories both ways and compares all tables.
"""
