"""The parts of the training loop: batches in, steps out, positions kept."""
