"""The history of the tables; pending migrations run when a store is opened."""
