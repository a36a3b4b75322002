"""Twister2Flow's names: a pipeline of scripts, over `trek.Flow`."""
