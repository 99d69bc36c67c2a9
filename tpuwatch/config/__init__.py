"""The configuration: one schema that feeds validation, the example file and `tpuwatch config show`.

In: TOML files, and the environment.
Out: validated settings, or errors that name the key and the right one.
Never: lets an unknown key or an unsafe value pass.

`schema` and `load` need pydantic, whose import takes a quarter of a second; `start` and `file` do not.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.config.consistency import inconsistencies
    from tpuwatch.config.file import SYSTEM_PATH, stamp
    from tpuwatch.config.load import load_config
    from tpuwatch.config.render import as_dict, render_example, show
    from tpuwatch.config.restart import LedgerConfig, RestartConfig
    from tpuwatch.config.schema import (
        CloudConfig,
        Config,
        ConfigKey,
        HostConfig,
        HttpConfig,
        KubernetesConfig,
        MonitoringConfig,
        PeersConfig,
        StateConfig,
    )
    from tpuwatch.config.start import DEFAULT_SOCKET, NEVER_SET, THIS_MACHINE, StartConfig, read_config, usable_config
    from tpuwatch.config.types import Allowed, Name, Project, Seconds, Section, YesNo, split_listen
