# Sourced. A scratch directory that is gone when the script ends, however it ends.
# shellcheck shell=bash

# Unmounts whatever is mounted below the directory $1, the deepest first, each by its own path.
unmount_below() {
    local point
    while read -r point; do
        # mountinfo writes blanks and the like in octal.
        printf -v point '%b' "$point"
        umount "$point" 2>/dev/null || fusermount3 -u "$point" 2>/dev/null ||
            umount -l "$point" 2>/dev/null || echo "still mounted: $point" >&2
    done < <(awk -v top="$1/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | sort -r)
}

# Ends the process groups or processes that the script started and noted in `children`.
end_children() {
    local pid
    for pid in "${children[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
    done
    for pid in "${children[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    children=()
}

# Logs and notes of network mounts on directories in the scratch directory: they lie where those of
# all mounts of a user lie, in directories that are named after the mount points.
remove_notes_of_mounts() {
    local notes
    # of what could not be unmounted they are needed
    ! grep -qF " $scratch/" /proc/self/mountinfo || return 0
    for notes in {/run/nearside,/run/user/[0-9]*/nearside,/tmp/nearside-[0-9]*}/*"${scratch##*/}-"*; do
        [[ ! -d $notes ]] || rm -rf --one-file-system "$notes"
    done
}

remove_scratch() {
    local status=$?
    trap '' INT TERM HUP
    end_children
    "$before_removal"
    unmount_below "$scratch"
    remove_notes_of_mounts
    # A file system that could not be unmounted is left alone with what is on it.
    rm -rf --one-file-system "$scratch"
    exit "$status"
}

# make_scratch NAME sets `scratch`; `children` for the ids of processes to end with it; and
# `before_removal` for a command to run before it goes, which finds the exit status in `status`.
make_scratch() {
    children=()
    before_removal=true
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/nearside-$1.XXXXXX")
    scratch=$(realpath "$scratch")
    # Tests try things as other users, who have to come there.
    chmod 711 "$scratch"
    trap remove_scratch EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
}
