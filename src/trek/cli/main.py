"""The root of the command line: imports a noun's file when it is called; turns errors into one line and a code."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

import click

from trek._version import __version__
from trek.cli.terminal import echo_lines
from trek.errors import TrainingError, TrekError
from trek.system.leaving import run_and_leave

# command -> (module:attribute, help shown in the list, so that listing imports nothing)
COMMANDS = {
    "archive": ("trek.cli.archive:archive", "Pack a checkpoint as an archive for TorchServe."),
    "checkpoint": ("trek.cli.checkpoint:checkpoint", "List, describe, download and delete checkpoints."),
    "cluster": ("trek.cli.cluster:cluster", "Show the control plane of this machine, and stop it."),
    "data": ("trek.cli.data:data", "Fetch and inspect data sets."),
    "det": ("trek.cli.det:det", "Run a command of Determined as the command of Trek that does the same."),
    "elasticdl": ("trek.cli.elasticdl:elasticdl", "Train models of ElasticDL's model zoo, with its options."),
    "experiment": ("trek.cli.experiment:experiment", "Create, list, describe, follow and end experiments."),
    "flow": ("trek.cli.flow:flow", "Run pipelines of steps, and inspect their runs."),
    "job": ("trek.cli.job:job", "Show the queue of trials, and change who goes first."),
    "launch": ("trek.cli.launch:launch", "Run a script as N processes."),
    "master": ("trek.cli.master:master", "Show the master, and stop it."),
    "migrate": ("trek.cli.migrate:migrate", "Change the import lines of scripts of other projects."),
    "model": ("trek.cli.model:model", "Register checkpoints as versions of models."),
    "preview-search": (
        "trek.cli.preview_search:preview_search",
        "Show how many trials a search trains to which length.",
    ),
    "predict": ("trek.cli.predict:predict", "Run a model over a whole data set."),
    "ps": ("trek.cli.ps:ps", "Run parameter servers, and show what they do."),
    "serve": ("trek.cli.serve:serve", "Serve a model over HTTP."),
    "template": ("trek.cli.template:template", "Manage templates: shared parts of configs."),
    "token": ("trek.cli.token:token", "Create, list and revoke your tokens for scripts."),
    "trial": ("trek.cli.trial:trial", "Describe, end and scale trials, and show their metrics and logs."),
    "up": ("trek.cli.up:up", "Start a master that other people can use."),
    "user": ("trek.cli.user:user", "Log in, and manage the users of a master."),
    "web": ("trek.cli.web:web", "Open the web page."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, by name."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file and return its command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and one-line help texts from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trek")
@click.option("-m", "--master", envvar="TREK_MASTER", metavar="URL", help="The master to use.  [default: a local one]")
@click.pass_context
def trek(ctx: click.Context, master: str | None) -> None:
    """Take one PyTorch model from a laptop to a cluster."""
    ctx.obj = {"master": master}


def command() -> NoReturn:
    """The command of a shell: `main` in a process of its own."""
    run_and_leave(main)


def main(argv: list[str] | None = None) -> Any:
    """Run the command line and exit with 0, 1, 2, 3 or 130; see `trek.errors`."""
    try:
        code = trek.main(args=argv, standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except TrekError as error:
        _show(error)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _show(error: TrekError) -> None:
    if isinstance(error, TrainingError) and error.traceback_text:
        echo_lines(error.traceback_text.rstrip(), err=True)
    message = str(error).replace("\n", "\n  ")  # indented, so that no line of it passes for one of the command
    echo_lines(f"trek: error: {message}", err=True)


if __name__ == "__main__":
    command()
