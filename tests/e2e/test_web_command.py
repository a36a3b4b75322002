"""`trek web` and `--web`: a link that logs a browser in once; needs no browser and no built page."""

from __future__ import annotations

import re
import signal
from urllib.parse import parse_qs

import httpx

from trek.testing.shell import Shell

LINK = re.compile(r"Web page:   (http://127\.0\.0\.1:\d+)/#/login\?(\S+)")


def test_the_link_opens_one_session_of_the_embedded_control_plane(shell: Shell) -> None:
    printed = shell.run("web", "experiments/3", "--no-open")
    assert printed.returncode == 0, printed.stderr
    found = LINK.search(printed.stdout)
    assert found is not None
    query = parse_qs(found[2])
    assert query["to"] == ["/experiments/3"]
    with httpx.Client(base_url=found[1], trust_env=False) as browser:
        assert browser.get("/").status_code in (200, 503)  # 503 says how to build the page
        assert browser.post("/api/v1/session", json={"code": query["code"][0]}).json()["user"]["role"] == "admin"
        assert browser.get("/api/v1/experiments").status_code == 200
        assert browser.post("/api/v1/session", json={"code": query["code"][0]}).status_code == 403
    created = shell.create("--web", "--no-follow", "--json")
    assert created.returncode == 0, created.stderr
    assert LINK.search(created.stderr), "what is printed stays JSON"
    assert "experiments%2F1" in created.stderr


def test_neither_the_code_of_a_link_nor_its_session_is_written_anywhere(shell: Shell) -> None:
    master = shell.start("up", "--port", "0")
    try:
        assert master.stdout is not None
        master.stdout.readline()
        found = LINK.search(shell.run("web", "--no-open").stdout)
        assert found is not None
        code = parse_qs(found[2])["code"][0]
        with httpx.Client(base_url=found[1], trust_env=False) as browser:
            assert browser.post("/api/v1/session", json={"code": code}).status_code == 200
            [token] = browser.cookies.values()
            assert browser.get(f"/api/v1/experiments?unknown={code}").status_code == 200
    finally:
        master.send_signal(signal.SIGINT)
        told = "".join(master.communicate(timeout=120))
    written = [path for path in shell.home.rglob("*") if path.is_file()]
    assert written
    for secret in (code, token):
        assert secret not in told
        assert [path.name for path in written if secret.encode() in path.read_bytes()] == []
