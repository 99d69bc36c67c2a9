"""A cloud that speaks TLS and demands tokens, with the metadata server that gives them out: DIRECTORY.

Leaves a note of where it listens in the directory.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from tpuwatch.core.clock import SystemClock
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

sys.path.append(str(Path(__file__).parents[4]))  # last: tpuwatch is the installed one

from tests.standins.certificates import make_certificates

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir()
    world = World(SystemClock())
    world.tokens = {}  # a call without one that was given out is refused
    node = world.add(SimNode("sim-project", "us-central2-b", "train-1"))
    certificates = make_certificates(directory)
    cloud = CloudServer(world, tls=certificates.server())
    metadata = MetadataServer(world, Pages(world, node.path))
    metadata.start()
    note = {
        "endpoint": f"localhost:{cloud.port}",
        "metadata": metadata.address,
        "authority": str(certificates.authority),
    }
    draft = directory / "note.new"
    draft.write_text(json.dumps(note))
    draft.rename(directory / "note.json")
    signal.pause()
