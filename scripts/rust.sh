# Sourced from the repository's root. Finds a Rust toolchain that builds this project.
# shellcheck shell=bash

# The version in a line such as `rust-version = "1.88"`.
quoted_version() { sed -n "s/^$2 *= *\"\([0-9.]*\)\".*/\1/p" "$1" | head -n 1; }

rust_least=$(quoted_version Cargo.toml rust-version)
rust_pinned=$(quoted_version rust-toolchain.toml channel)

# With what all tests are built, once: the whole workspace, for one crate alone would choose other
# features of its dependencies; and every feature, of which fabrics take libfabric's headers
# (`scripts/setup tests` brings them).
# shellcheck disable=SC2034 # for those who source this
tested=(--workspace --features nearside-cli/object-store)
[[ ! -f /usr/include/rdma/fabric.h ]] || tested[2]+=,nearside-cli/fabric

# Prints the program of the pinned toolchain that compiles as rustc does, and lints as it goes. Another
# toolchain's has other lints, which must not end a build.
clippy_driver() {
    local program
    program=$(rustc --print sysroot)/bin/clippy-driver
    [[ ${rust_is_pinned:-no} == yes && -x $program ]] && echo "$program"
}

# as_tested ARGUMENT... : cargo, for what is tested. Clippy compiles it where it can, so that no crate is
# compiled for its lints alone (`scripts/lint`).
as_tested() {
    local clippy
    if clippy=$(clippy_driver); then
        RUSTC_WORKSPACE_WRAPPER=$clippy cargo "$@"
    else
        cargo "$@"
    fi
}

# Builds these programs as the tests have them. A test is built with them: else cargo would choose
# other features of dependencies than for tests, and compile most crates once more.
build_as_tested() {
    local programs=() program
    for program in "$@"; do
        programs+=(--bin "$program")
    done
    as_tested build --locked "${tested[@]}" --test repository "${programs[@]}"
}

# version_at_least HAVE LEAST
version_at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

# Prints the version of cargo, and fails unless cargo and rustc are both there and new enough.
rust_version() {
    local cargo rustc
    cargo=$(cargo --version 2>/dev/null | awk '{ print $2 }') || return 1
    rustc=$(rustc --version 2>/dev/null | awk '{ print $2 }') || return 1
    version_at_least "${cargo:-0}" "$rust_least" || return 1
    version_at_least "${rustc:-0}" "$rust_least" || return 1
    echo "$rustc"
}

# Exports what selects a toolchain: the pinned one, or any release that is new enough, with a
# line that says so. Sets rust_is_pinned. Fails if there is none.
use_rust() {
    local cargo_home=~/.cargo have toolchain
    cargo_home=${CARGO_HOME:-$cargo_home}
    if [[ -d $cargo_home/bin && :$PATH: != *":$cargo_home/bin:"* ]]; then
        export PATH="$cargo_home/bin:$PATH"
    fi
    have=$(rust_version) || have=
    if [[ -z $have ]] && command -v rustup >/dev/null; then
        while read -r toolchain; do
            if have=$(RUSTUP_TOOLCHAIN=$toolchain rust_version); then
                export RUSTUP_TOOLCHAIN=$toolchain
                break
            fi
        done < <(rustup toolchain list | awk '$1 ~ /^(stable|[0-9])/ { print $1 }' | sort -rV)
    fi
    [[ -n $have ]] || return 1
    export rust_is_pinned=no
    if [[ $have == "$rust_pinned" ]]; then
        rust_is_pinned=yes
    else
        echo "rust: $have stands in for the pinned $rust_pinned"
    fi
}
