"""The `ray` engine: gangs on the machines of a Ray cluster, which this package neither starts nor manages.

Every member has an actor (`member_actor`), placed by Ray, which runs the member's agent on its machine. The gang that
watches them (`trek.engines.gang`) and the agent are those of the local engine.
"""
