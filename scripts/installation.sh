# Sourced. Installs files below a prefix, and keeps a list of them there, by which they are removed.
#
# The list is PREFIX/share/nearside/NAME.list: a path on each line, without DESTDIR; the path of a
# directory ends with a slash. Every path is listed before it is made, except the directories of the
# list itself. The list is removed after all other files. So an interrupted installation can be
# finished or removed, and an interrupted removal can be repeated.
# shellcheck shell=bash

# A script that has an option --force sets it. It is not taken from the environment.
unset force

# fail MESSAGE [STATUS]
fail() {
    echo "$(basename "$0"): $1" >&2
    exit "${2:-1}"
}

# use_prefix NAME PREFIX comes first. It sets `prefix`, and `to`: the same below DESTDIR.
use_prefix() {
    root=${DESTDIR:-}
    [[ -z $root || $root == /* ]] || fail "DESTDIR is $root; give an absolute path" 2
    [[ $2 == /* ]] || fail "the prefix is $2; give an absolute path" 2
    prefix=$(realpath -sm -- "$2")
    prefix=${prefix%/}
    to=$root$prefix
    lists=$prefix/share/nearside
    list=$lists/$1.list
    # Where `to` is, without symbolic links.
    real_to=$(realpath -m -- "$to/")
    declare -gA real_below=()
}

# The lines of the list.
read_list() {
    [[ ! -f $root$list ]] || LC_ALL=C sed '/^$/d' "$root$list"
}

# Replaces the list by all that is listed, in one step.
write_list() {
    printf '%s\n' "${!listed[@]}" | LC_ALL=C sort >"$root$list.new"
    chmod 644 "$root$list.new"
    mv -fT "$root$list.new" "$root$list"
}

# Whether a list of ours names this path.
is_ours() { grep -qxsF -- "$1" "$root$lists"/*.list; }

# Lists a path once.
add_to_list() {
    [[ -z ${listed[$1]:-} ]] || return 0
    listed[$1]=yes
    [[ ! -e $root$list ]] || printf '%s\n' "$1" >>"$root$list"
}

# Makes a directory and those above it. A directory that was missing is listed, also if another list
# of ours has it: the last of these installations removes it.
make_directory() {
    local dir=$1
    [[ -n $dir && -z ${listed[$dir/]:-} && -z ${foreign[$dir]:-} ]] || return 0
    make_directory "${dir%/*}"
    if [[ ! -d $root$dir ]]; then
        add_to_list "$dir/"
        install -d -m 755 "$root$dir"
    elif is_ours "$dir/"; then
        add_to_list "$dir/"
    else
        foreign[$dir]=yes
    fi
}

# Comes before the first `put`.
begin_installation() {
    modes=() sources=() paths=()
}

# put MODE FILE PATH: `end_installation` installs FILE as PATH below the prefix.
put() {
    modes+=("$1")
    sources+=("$2")
    paths+=("$prefix/$3")
}

# put_link TARGET PATH: the same with a symbolic link.
put_link() { put link "$1" "$2"; }

# Fails if a file is in the way that no list of ours names. A set `force` replaces such files, and
# `--remove` removes them then. The message names --force where the script has such an option.
check_free() {
    local path
    [[ -z ${force:-} ]] || return 0
    for path in "$@"; do
        if [[ -e $root$path || -L $root$path ]] && ! is_ours "$path"; then
            fail "$root$path exists, and this script did not install it; nothing was installed.\
 Move the file away${force+, or replace it with --force}"
        fi
    done
}

# Installs a file as a path, or makes a link there, in one step: a program that is started meanwhile
# is the old one or the new one.
install_file() {
    local mode=$1 source=$2 path=$3
    make_directory "${path%/*}"
    add_to_list "$path"
    if [[ $mode == link ]]; then
        ln -sfT "$source" "$root$path"
    else
        install -m "$mode" "$source" "$root$path.new"
        mv -fT "$root$path.new" "$root$path"
    fi
}

# Comes after the last `put`. Installs all files. Removes those that only an earlier version had.
end_installation() {
    local path index before=() old=()
    declare -gA listed=() foreign=()
    mapfile -t before < <(read_list)
    check_paths "nothing was installed" "$list" "${paths[@]}" ${before[@]+"${before[@]}"}
    check_free "${paths[@]}"
    make_directory "$lists"
    add_to_list "$list"
    [[ -f $root$list ]] || write_list
    for index in "${!paths[@]}"; do
        install_file "${modes[index]}" "${sources[index]}" "${paths[index]}"
    done
    for path in ${before[@]+"${before[@]}"}; do
        [[ -n ${listed[$path]:-} ]] || old+=("$path")
    done
    remove_paths ${old[@]+"${old[@]}"}
    write_list
}

# Whether a directory is below the prefix where symbolic links lead, too, or is the prefix itself.
is_below() {
    local dir=$root$1/ real
    if [[ -z ${real_below[$dir]:-} ]]; then
        real_below[$dir]=no
        real=$(realpath -m -- "$dir") || return 1
        [[ $real/ != "${real_to%/}"/* ]] || real_below[$dir]=yes
    fi
    [[ ${real_below[$dir]} == yes ]]
}

# check_paths OUTCOME PATH...: fails with OUTCOME if a path cannot be of an installation, or if a
# symbolic link above it leads out of the prefix. Directories above the prefix are allowed: they are
# only removed when they are empty.
check_paths() {
    local outcome=$1 path dir
    shift
    for path in "$@"; do
        if [[ $path/ == */../* || ($path != "$prefix"/* && ($path != */ || $prefix/ != "$path"*)) ]]
        then
            fail "$root$list names \"$path\", which is not below ${prefix:-/}; $outcome"
        fi
        [[ $path == "$prefix"/?* ]] || continue
        dir=${path%/}
        dir=${dir%/*}
        if ! is_below "$dir"; then
            fail "$root$dir is outside of $real_to, because of a symbolic link; $outcome.\
 Replace the link by a directory, or give the prefix to which it leads"
        fi
    done
}

# Removes a file, or a directory if it is empty.
remove_path() {
    case $1 in
        */) [[ ! -d $root$1 || -L $root${1%/} ]] \
            || rmdir --ignore-fail-on-non-empty -- "$root$1" ;;
        *) rm -f -- "$root$1" "$root$1.new" ;;
    esac
}

# Removes files, and the directories that are empty then; the list and its directories come last.
# Removes nothing if a path cannot be of an installation.
remove_paths() {
    local path last=()
    check_paths "nothing was removed" "$@"
    # In this order a directory comes after all that is in it.
    while IFS= read -r path; do
        if [[ -z $path ]]; then
            continue
        elif [[ $path == "$list" || ($path == */ && $list == "$path"*) ]]; then
            last+=("$path")
        else
            remove_path "$path"
        fi
    done < <(printf '%s\n' "$@" | LC_ALL=C sort -ru)
    for path in ${last[@]+"${last[@]}"}; do remove_path "$path"; done
}

# Removes all that is listed.
remove_installation() {
    local all=()
    if [[ ! -f $root$list ]]; then
        echo "$(basename "$0"): there is no $root$list, so there is nothing to remove" >&2
        return 0
    fi
    mapfile -t all < <(read_list)
    remove_paths "$list" ${all[@]+"${all[@]}"}
    echo "removed from $to"
}
