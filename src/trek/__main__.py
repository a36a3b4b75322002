"""`python -m trek` is `trek`."""

from trek.cli.main import command

command()
