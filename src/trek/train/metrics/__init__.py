"""The metrics of a run: sums, reducers, the table of epochs, the goal."""
