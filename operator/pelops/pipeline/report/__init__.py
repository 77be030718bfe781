"""What an audit found, for people (one HTML page) and for programs (one JSON document)."""
