# Sourced. Installs files below a prefix, and keeps a list of them there, by which they are removed.
#
# The list is PREFIX/share/nearside/NAME.list: a path on each line, without DESTDIR; the path of a
# directory ends with a slash. Every path is listed before it is made. So an installation that was
# interrupted can be finished or removed, too.
# shellcheck shell=bash

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
}

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
    elif grep -qxsF -- "$dir/" "$root$lists"/*.list; then
        add_to_list "$dir/"
    else
        foreign[$dir]=yes
    fi
}

# Comes before the first `put`.
begin_installation() {
    declare -gA listed=() foreign=()
    before=()
    make_directory "$lists"
    if [[ -f $root$list ]]; then
        mapfile -t before <"$root$list"
    else
        install -m 644 /dev/null "$root$list"
        printf '%s\n' "${!listed[@]}" >"$root$list"
    fi
    add_to_list "$list"
}

# put MODE FILE PATH installs a file as PATH below the prefix, in one step: a program that is started
# meanwhile is the old one or the new one.
put() {
    local path=$prefix/$3
    make_directory "${path%/*}"
    add_to_list "$path"
    install -m "$1" "$2" "$root$path.new"
    mv -fT "$root$path.new" "$root$path"
}

# put_link TARGET PATH
put_link() {
    local path=$prefix/$2
    make_directory "${path%/*}"
    add_to_list "$path"
    ln -sfT "$1" "$root$path"
}

# Comes after the last `put`. Removes the files that only an earlier version had.
end_installation() {
    local path old=()
    for path in ${before[@]+"${before[@]}"}; do
        [[ -n ${listed[$path]:-} ]] || old+=("$path")
    done
    remove_paths ${old[@]+"${old[@]}"}
    printf '%s\n' "${!listed[@]}" | LC_ALL=C sort >"$root$list.new"
    chmod 644 "$root$list.new"
    mv -fT "$root$list.new" "$root$list"
}

# Removes files, and the directories that are empty then. Removes nothing if a path cannot be of an
# installation.
remove_paths() {
    local path
    for path in "$@"; do
        if [[ $path == */../* || ($path != "$prefix"/* && ($path != */ || $prefix/ != "$path"*)) ]]
        then
            fail "$root$list names \"$path\", which is not below $prefix; nothing was removed"
        fi
    done
    # In this order a directory comes after all that is in it.
    while read -r path; do
        case $path in
            '') ;;
            */) [[ ! -d $root$path ]] || rmdir --ignore-fail-on-non-empty -- "$root$path" ;;
            *) rm -f -- "$root$path" "$root$path.new" ;;
        esac
    done < <(printf '%s\n' "$@" | LC_ALL=C sort -r)
}

# Removes all that is listed.
remove_installation() {
    local paths=()
    if [[ ! -f $root$list ]]; then
        echo "$(basename "$0"): there is no $root$list, so there is nothing to remove" >&2
        return 0
    fi
    mapfile -t paths <"$root$list"
    remove_paths "${paths[@]}"
    echo "removed from $to"
}
