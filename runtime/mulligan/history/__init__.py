"""Remembering: sessions, records and layers in one SQLite file, and the graph of who relied on whom."""
