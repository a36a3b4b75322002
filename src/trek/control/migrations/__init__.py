"""The history of the tables, run forwards when a store opens."""
