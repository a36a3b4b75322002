"""What a run writes down of itself: sums, reducers, the table of epochs, the goal."""
