"""Warm start: members forked from a parent process that has imported torch and Trek already.

- `rules`: which members may be started warm, and what makes two parents different. Pure.
- `parent`: the parent process. It runs no user code, has one thread and no CUDA, and ends when it is idle.
- `child`: how a forked process becomes what `python -m module` would have been.
- `warm_agent`: the starter's side. Whatever goes wrong there, a fresh process is started instead.

Agents are forked from the parent and fork their member, so everything about agents holds for warm members too. What
differs from a fresh process: members of one parent share the secret of Python's string hashes (unless PYTHONHASHSEED is
set), and modules that their imports named are loaded before their first line runs.
"""
