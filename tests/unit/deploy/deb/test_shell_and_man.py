"""Where the Debian package has its completions and its man page, and that bash can use them."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

from deploy.deb.__main__ import _completions, _man_page


def test_completions_are_where_the_shells_look(tmp_path: Path) -> None:
    _completions(tmp_path)
    bash = tmp_path / "bash-completion/completions/tpuwatch"  # bash-completion loads it by the command's name
    script = f"source {bash}; complete -p tpuwatch; COMP_WORDS=(tpuwatch sup); COMP_CWORD=1; "
    script += '$(complete -p tpuwatch | sed "s/.*-F \\([^ ]*\\).*/\\1/") tpuwatch sup tpuwatch; echo "${COMPREPLY[@]}"'
    done = subprocess.run(("/bin/bash", "--norc", "-c", script), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1].split() == ["support"]
    zsh = (tmp_path / "zsh/vendor-completions/_tpuwatch").read_text()  # in zsh's $fpath on Debian
    assert zsh.startswith("#compdef tpuwatch\n")
    assert "--redact-project" in zsh


def test_the_man_page_is_packed_and_the_same_each_time(tmp_path: Path) -> None:
    _man_page(tmp_path / "a.gz")
    _man_page(tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).startswith(b".TH TPUWATCH 1 ")
