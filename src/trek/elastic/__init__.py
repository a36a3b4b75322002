"""Jobs whose workers come and go: who belongs to a job, which generation it is in, and which records are whose.

`membership` and `shards` are pure: they decide, with neither clock nor socket. `coordinator` serves them to the
processes of a job over authenticated connections and keeps them across a crash of its own; `coordinator_client` is a
worker's side. Nothing here knows about models or gradients.
"""
