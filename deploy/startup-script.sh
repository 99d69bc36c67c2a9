#!/usr/bin/env bash
# Installs tpuwatch on a TPU VM, or brings it up to date; as root, at each boot or by hand. docs/fleet.md shows its use.
#
# From the VM's metadata, else from the environment:
#   tpuwatch-deb     TPUWATCH_DEB     the Debian package: gs://BUCKET/OBJECT, https://…, or a file on this machine
#   tpuwatch-sha256  TPUWATCH_SHA256  its checksum; required for https://
#   tpuwatch-config  TPUWATCH_CONFIG_TEXT  the whole configuration; without it the one that is there stays
set -euo pipefail

readonly METADATA="http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/attributes"
readonly CONFIG="${TPUWATCH_ROOT:-}/etc/tpuwatch/config.toml"
readonly ENVIRONMENT="${TPUWATCH_ROOT:-}/usr/lib/tpuwatch/environment" # of the package
readonly STAMP="${TPUWATCH_ROOT:-}/var/lib/misc/tpuwatch-package" # which package was installed last

fail() {
    echo "tpuwatch: $*" >&2
    exit 1
}

# The value of an attribute of this VM; nothing where it has none, or there is no metadata server.
attribute() {
    curl --silent --fail --max-time 10 --header 'Metadata-Flavor: Google' "$METADATA/$1" || true
}

# Fetch the package into a file.
fetch() {
    case $1 in
        gs://*) gcloud storage cp --quiet "$1" "$2" ;;
        https://*)
            [[ -n $sha256 ]] || fail "$1 takes its checksum in tpuwatch-sha256"
            curl --silent --show-error --fail --location --retry 5 --output "$2" "$1"
            ;;
        /*) cp "$1" "$2" ;;
        *) fail "tpuwatch-deb is '$1'; give gs://BUCKET/OBJECT, https://… or the path of a file" ;;
    esac
    [[ -z $sha256 ]] || echo "$sha256  $2" | sha256sum --check --quiet || fail "$1 has another checksum than $sha256"
}

install_package() {
    scratch=$(mktemp --directory)
    trap 'rm -rf "$scratch"' EXIT
    fetch "$package" "$scratch/tpuwatch.deb"
    chmod -R a+rX "$scratch" # apt reads it as a user of its own
    # cloud-init and unattended upgrades use dpkg at the same time
    if ! DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --allow-downgrades \
        --option DPkg::Lock::Timeout=600 "$scratch/tpuwatch.deb"; then
        # It is unpacked and refuses the configuration that is there? It may take the new one.
        [[ -n $config && -x $ENVIRONMENT ]] || fail "$package could not be installed"
        write_config "$ENVIRONMENT" check || true
        dpkg --configure tpuwatch
    fi
    mkdir -p "$(dirname "$STAMP")"
    echo "$package $sha256" >"$STAMP"
}

# Write the configuration, if the command "$@" accepts it; whether it is another one than before.
write_config() {
    local new=$CONFIG.new code=0
    printf '%s\n' "$config" >"$new"
    "$@" "$new" || code=$?
    if ((code > 1)); then # 1: a rule is refused, and left out
        rm -f "$new"
        fail "tpuwatch-config is wrong, and is not used"
    fi
    if cmp --silent "$new" "$CONFIG"; then
        rm -f "$new"
        return 1
    fi
    mv "$new" "$CONFIG"
}

configure() {
    if write_config tpuwatch config check --config; then
        systemctl reload-or-restart tpuwatch
    fi
}

package=$(attribute tpuwatch-deb)
package=${package:-${TPUWATCH_DEB:-}}
sha256=$(attribute tpuwatch-sha256)
sha256=${sha256:-${TPUWATCH_SHA256:-}}
config=$(attribute tpuwatch-config)
config=${config:-${TPUWATCH_CONFIG_TEXT:-}}

[[ -n $package ]] || fail "no package is named: set tpuwatch-deb in the VM's metadata, or TPUWATCH_DEB"
if [[ $package == /* ]] || ! command -v tpuwatch >/dev/null || [[ $(cat "$STAMP" 2>/dev/null) != "$package $sha256" ]]; then
    install_package
fi
[[ -z $config ]] || configure
tpuwatch --version
