"""A function run on a gang of processes: how it is sent, how each process ends, and what is reported of a hang."""
