"""A function run on a gang of processes: how it travels, how each process ends, what is told of a hang."""
