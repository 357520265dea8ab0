# Sourced. Debian's packages: installed where they are missing, or only unpacked somewhere.
# shellcheck shell=bash

export DEBIAN_FRONTEND=noninteractive
apt_is_fresh=no

fail() {
    echo "$(basename "$0"): $1" >&2
    exit 1
}

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# Refreshes the lists of packages, once and only before something is fetched.
refresh_apt() {
    [[ $apt_is_fresh == no ]] || return 0
    apt-get update -qq
    apt_is_fresh=yes
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    [[ $EUID -eq 0 ]] || fail "not root; run: apt-get install ${missing[*]}"
    echo "$(basename "$0"): installing ${missing[*]}"
    refresh_apt
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# use_lists DIR ARCHITECTURE... makes apt use lists of packages of its own in DIR, for these
# architectures: the machine's own settings stay as they are.
use_lists() {
    local dir=$1
    shift
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    dir=$(realpath "$dir")
    {
        printf 'Dir::State::Lists "%s/lists";\nDir::Cache "%s/cache";\n' "$dir" "$dir"
        printf 'APT::Architectures { %s};\n' "$(printf '"%s"; ' "$@")"
    } >"$dir/apt.conf"
    export APT_CONFIG=$dir/apt.conf
    apt_is_fresh=no
    refresh_apt
}

# The first package that PACKAGE depends on whose name fits the pattern.
dependency() { apt-cache depends "$1" | awk -v p="$2" '$1 == "Depends:" && $2 ~ p { print $2; exit }'; }

# unpack_packages DIR PACKAGE... unpacks them below DIR, which then holds them and nothing else;
# they are fetched only if DIR holds others, or older ones.
unpack_packages() {
    local dir=$1 wanted
    shift
    wanted=$(apt-cache --no-all-versions show "$@" | awk '/^(Package|Version|Architecture):/')
    [[ ! -f $dir/unpacked || $wanted != "$(<"$dir/unpacked")" ]] || return 0
    echo "$(basename "$0"): fetching $*"
    rm -rf "$dir"
    mkdir -p "$dir/fetched"
    (cd "$dir/fetched" && apt-get download -qq -o APT::Sandbox::User=root "$@") || return 1
    find "$dir/fetched" -name '*.deb' -exec dpkg-deb -x {} "$dir" \;
    rm -r "$dir/fetched"
    printf '%s\n' "$wanted" >"$dir/unpacked"
}
