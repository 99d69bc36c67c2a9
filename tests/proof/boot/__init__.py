"""Proves the systemd unit on a Debian that is really booted, in a container, with a simulated cloud beside the daemon.

tpuwatch is installed in it by the very commands that README.md gives, and removed by those of docs/operations.md. It
takes root, debootstrap and systemd-nspawn, and the network while the Debian is made. It is run by `make booted`.
"""
