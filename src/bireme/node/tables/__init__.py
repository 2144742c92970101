"""Tables on a server: rows by any int64 id, made on first use, each with its own state."""
