"""Other projects' names over Trek's public ones, so that their users' scripts run with changed import lines.

One package per project, one file per module of theirs. Nothing here is implemented a second time, and nothing of Trek
imports it, but for the commands that are about these projects: `trek det`, `trek elasticdl` and `trek migrate`.
"""
