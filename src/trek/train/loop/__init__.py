"""The parts of the training loop: batches, steps, schedules, positions."""
