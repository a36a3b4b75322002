"""The training room: Traveler, Trial, Trainer, checkpoints, loggers. Import what you need from its modules.

Empty, so that parts without torch (`trek.train.length`) load without it.
"""
