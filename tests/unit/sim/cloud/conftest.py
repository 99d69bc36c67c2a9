from tests.unit.sim.cloud.servers import cloud

__all__ = ["cloud"]  # a fixture
