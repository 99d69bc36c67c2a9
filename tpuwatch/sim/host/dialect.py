"""What libtpu's versions say differently: build labels, source file names, and the shape of a memory report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """One libtpu version, as far as it can be distinguished by its logs."""

    version: str
    label: str  # the build label, by which the version is known in a log
    built: str
    chip: str  # older builds hide the chip family's code name in file and flag names
    compiler: str  # the source file that reports a failed compilation
    partitions: bool  # names the number of premapped partitions
    whole_report: bool  # an out-of-memory report is one record with blank lines, not one record for each of its lines

    @property
    def header(self) -> tuple[str, ...]:
        """What each log file's head says of the binary."""
        return (
            f"Binary: Built on {self.built}",
            "Binary: Built at release@builder.example:/build/libtpu     ",  # padded with blanks, as in the field
            "Binary: Built for gcc-4.X.Y-crosstool-v18-llvm-grtev4-k8.k8",
        )


DIALECTS = {
    dialect.version: dialect
    for dialect in (
        Dialect(
            version="0.0.51",
            label="libtpu_lts_20261020_b_RC01",
            built="Oct 21 2026 06:24:49 (1792589089)",
            chip="deepsea",
            compiler="deepsea_compiler_base.cc",
            partitions=True,
            whole_report=True,
        ),
        Dialect(
            version="0.0.42.1",
            label="libtpu_lts_20260615_b_RC03",
            built="Jun 17 2026 11:08:48 (1781719728)",
            chip="deepsea",
            compiler="deepsea_compiler_base.cc",
            partitions=False,
            whole_report=True,
        ),
        Dialect(
            version="0.0.23",
            label="libtpu_lts_20250908_a_RC01",
            built="Sep 11 2025 15:57:19 (1757631439)",
            chip="2a886c8",
            compiler="2a886c8_compiler_base.cc",
            partitions=False,
            whole_report=False,
        ),
    )
}
