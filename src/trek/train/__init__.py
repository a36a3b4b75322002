"""The training room: Traveler, Trial, Trainer, checkpoints, loggers. Import what you need from its modules.

Kept empty so that torch-free parts (`trek.train.length`) load without torch.
"""
