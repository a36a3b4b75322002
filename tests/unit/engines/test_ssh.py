"""The command lines that reach other machines."""

from __future__ import annotations

import shlex
import sys

from trek.engines.ssh import portable_environment, ssh_command


def test_ssh_never_asks_and_starts_an_agent_with_this_python() -> None:
    command = ssh_command("node1", environ={})
    assert command[0] == "ssh"
    assert "BatchMode=yes" in command
    assert command[-2] == "node1"
    assert shlex.split(command[-1]) == [
        sys.executable,
        "-W",
        "ignore::RuntimeWarning:runpy",
        "-m",
        "trek.engines.agent",
    ]


def test_another_ssh_may_be_named_with_options() -> None:
    command = ssh_command("node1", environ={"TREK_SSH": "'/opt/my ssh/ssh' -p 2222"})
    assert command[:3] == ["/opt/my ssh/ssh", "-p", "2222"]


def test_the_environment_that_travels_leaves_this_machines_own_things_here() -> None:
    environ = {"HOME": "/home/me", "SSH_AUTH_SOCK": "/x", "TREK_SSH": "y", "WANDB_API_KEY": "k", "PATH": "/bin"}
    assert portable_environment(environ) == {"WANDB_API_KEY": "k", "PATH": "/bin"}
