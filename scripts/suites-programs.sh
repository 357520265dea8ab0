# Sourced by scripts/suites. Programs that lean on a file system, each on a mounted pool.
# shellcheck shell=bash
# shellcheck disable=SC2154 # what scripts/suites sets

postmaster=

# A server of PostgreSQL that is still there ends; its directory is to go.
end_postgresql() {
    rm -f /etc/postgresql-common/createcluster.d/nearside.conf
    [[ -z $postmaster ]] || kill -QUIT "$postmaster" 2>/dev/null || true
    postmaster=
}

# Builds go-fuse's tests, unless there is no way to: what an earlier run has built serves then, as in
# a guest without a network.
build_posixtest() {
    local go=/usr/local/go/bin/go
    [[ -x $go ]] || go=$(command -v go) || { have_packages golang-go && go=$(command -v go); } ||
        { echo "no Go here"; return 1; }
    version_at_least "$("$go" env GOVERSION | tr -d go)" 1.21 ||
        { echo "takes Go 1.21 or newer"; return 1; }
    (cd scripts/posixtest && "$go" mod download) || { echo "go-fuse cannot be had here"; return 1; }
    (cd scripts/posixtest && "$go" test -c -o "$1" .) || fail "posixtest does not build"
}

posixtest() {
    local program=$built/suites/bin/posixtest
    build_posixtest "$program" >"$scratch/go" || [[ -x $program ]] ||
        { skip "posixtest: $(tail -n 1 "$scratch/go")"; return 0; }
    mounted mnt
    NEARSIDE_MOUNT=$scratch/mnt run "$program" -test.v >"$scratch/posixtest.log" 2>&1 ||
        { cat "$scratch/posixtest.log"; return 1; }
    grep -A 1 -e '--- SKIP' "$scratch/posixtest.log" || true
    passed=$((passed + $(grep -c -- '--- PASS: TestPosix/' "$scratch/posixtest.log")))
    closed mnt
}

# Debian's package would start a server of its own.
install_postgresql() {
    local settings=/etc/postgresql-common/createcluster.d/nearside.conf
    compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && return 0
    have_packages postgresql-common || return 1
    mkdir -p "${settings%/*}"
    echo "create_main_cluster = false" >"$settings"
    have_packages postgresql || return 1
    rm -f "$settings"
}

# As the user that the package made: PostgreSQL refuses to run as root.
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"; }

sql() { as_postgres "$bin/psql" -h "$sockets" -d postgres -qAtX -v ON_ERROR_STOP=1 -c "$1"; }

start_postgresql() {
    as_postgres "$bin/pg_ctl" -s -w -t 120 -D "$data" -l "$sockets/log" start \
        </dev/null >/dev/null 2>"$sockets/start" ||
        { tail -n 30 "$sockets/start" "$sockets/log"; return 1; }
    postmaster=$(head -n 1 "$data/postmaster.pid")
}

make_database() {
    sockets=$scratch/postgresql data=$scratch/mnt/postgresql
    mkdir "$sockets" "$data"
    chown postgres: "$sockets" "$data"
    as_postgres "$bin/initdb" -D "$data" -A trust --data-checksums -E UTF8 --locale C >/dev/null
    # Checkpoints come often: after each, the first change of a page would be logged whole.
    cat >>"$data/postgresql.conf" <<EOF
full_page_writes = off
listen_addresses = ''
unix_socket_directories = '$sockets'
shared_buffers = 4MB
max_wal_size = 32MB
min_wal_size = 32MB
checkpoint_timeout = 30s
jit = off
EOF
    start_postgresql
    as_postgres "$bin/pgbench" -h "$sockets" -d -i -q -s 2 postgres >/dev/null 2>"$sockets/made" ||
        { tail -n 5 "$sockets/made"; return 1; }
    sql "create table acknowledged (client int not null, delta int not null)"
    cat >"$sockets/transaction" <<'EOF'
\set account random(1, 200000)
\set delta random(-5000, 5000)
begin;
update pgbench_accounts set abalance = abalance + :delta where aid = :account;
insert into acknowledged values (:client_id, :delta);
commit;
EOF
    chmod 644 "$sockets/transaction"
}

# bench WORD... : four clients in the background, whose logs name each transaction that was
# acknowledged to them.
bench() {
    rm -f "$sockets"/done.*
    as_postgres "$bin/pgbench" -h "$sockets" -n -c 4 -j 1 -f "$sockets/transaction" -l \
        --log-prefix="$sockets/done" "$@" postgres >"$sockets/bench" 2>&1 &
    children=("$!")
}

# Waits until the database has so many transactions; the clients must be at work meanwhile.
await_transactions() {
    local count=0
    while ((count < $1)); do
        kill -0 "${children[0]}" || { tail "$sockets/bench"; return 1; }
        count=$(sql "select count(*) from acknowledged")
    done
}

# Compares what clients were told with what is there: each has all that was acknowledged to it,
# and at most $1 more, which was under way.
compare_acknowledged() {
    local client told found
    for client in 0 1 2 3; do
        told=$(cat "$sockets"/done.* | awk -v c="$client" '$1 == c' | wc -l)
        found=$(sql "select count(*) from acknowledged where client = $client")
        ((told > 0 && found >= told && found <= told + $1)) ||
            { echo "client $client was told of $told transactions, $found are there"; return 1; }
        passed_transactions=$((passed_transactions + told))
    done
    [[ $(sql "select sum(abalance) from pgbench_accounts") == $(sql "select sum(delta) from acknowledged") ]] ||
        { echo "accounts and transactions do not agree"; return 1; }
    sql "truncate acknowledged; update pgbench_accounts set abalance = 0 where abalance <> 0"
}

# The server of the mount is killed three times under load: clients see a delay, no error.
kill_servers() {
    local turn server
    bench -t 1000
    for turn in 1 2 3; do
        await_transactions $((turn * 900))
        server=$(mount_processes | tail -n 1)
        kill -9 "$server"
    done
    wait "${children[0]}" || { tail "$sockets/bench"; return 1; }
    children=()
    grep -q 'number of failed transactions: 0 ' "$sockets/bench"
    compare_acknowledged 0
}

# Keeper and server are killed under load: the file system is gone for the database, as in a crash.
# The database recovers from its log, without a whole page in it.
kill_mount() {
    local pid
    bench -T 600
    await_transactions 1500
    while read -r pid; do kill -9 "$pid"; done < <(mount_processes)
    kill -QUIT "$postmaster" 2>/dev/null || true
    wait "${children[0]}" && { echo "the clients did not notice"; return 1; }
    children=()
    timeout 300 tail --pid="$postmaster" -f /dev/null || { echo "PostgreSQL does not end"; return 1; }
    "$nearside" mount "$scratch/pool" "$scratch/mnt"
    start_postgresql
    grep -q 'database system was not properly shut down' "$sockets/log"
    compare_acknowledged 1
}

postgresql() {
    local rounds=${1:-1} round bin data sockets passed_transactions=0
    install_postgresql || { skip "PostgreSQL cannot be installed here"; return 0; }
    bin=$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/postgres' | tail -n 1)")
    # Another user works in there.
    chmod 755 "$scratch"
    mounted mnt
    chmod 755 "$scratch/mnt"
    make_database
    for ((round = 1; round <= rounds; round++)); do
        kill_servers
        kill_mount
        passed=$((passed + 2))
    done
    as_postgres "$bin/pg_ctl" -s -w -m fast -D "$data" stop
    postmaster=
    as_postgres "$bin/pg_checksums" --check -D "$data" | grep 'Bad checksums: *0$'
    echo "postgresql: $rounds rounds, $passed_transactions transactions acknowledged"
    rm -r "$data"
    closed mnt
}

# This machine's lists of where packages come from, for their sources.
write_source_lists() {
    local list
    for list in /etc/apt/sources.list.d/*.sources; do
        [[ ! -f $list ]] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$1/sources.d/${list##*/}"
    done
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ ! -f $list ]] || sed -n 's/^deb /deb-src /p' "$list" >>"$1/sources.list"
    done
}

# zlib's source as Debian has it, fetched with lists of packages of their own.
fetch_zlib() {
    local dir=$built/debian/zlib
    compgen -G "$dir/zlib-*/configure" >/dev/null && return 0
    have_packages dpkg-dev || return 1
    rm -rf "$dir"
    mkdir -p "$dir/lists/partial" "$dir/sources.d"
    write_source_lists "$dir"
    (
        cd "$dir"
        options=(-qq -o "Dir::State::Lists=$dir/lists" -o "Dir::Etc::SourceList=$dir/sources.list"
            -o "Dir::Etc::SourceParts=$dir/sources.d" -o APT::Sandbox::User=root)
        apt-get "${options[@]}" update && apt-get "${options[@]}" source zlib >/dev/null
    ) || return 1
    rm -rf "$dir/lists"
}

compile() {
    if ! have_packages build-essential || ! fetch_zlib; then
        skip "zlib's source cannot be had here"
        return 0
    fi
    mounted mnt
    cp -a "$built"/debian/zlib/zlib-*/ "$scratch/mnt/zlib"
    run env -C "$scratch/mnt/zlib" sh -euc '
        ./configure --prefix=/usr
        make -j2
        make test
        make install DESTDIR=../installed
        # Times and sizes are what make believes: nothing is to be done twice.
        make | grep -q "Nothing to be done"
        touch inflate.c
        make -n | grep -q inflate.o
        gcc -fsyntax-only -I ../installed/usr/include -x c - <<C
#include <zlib.h>
C
    ' >"$scratch/compile.log" 2>&1 || { tail -n 40 "$scratch/compile.log"; return 1; }
    grep 'test OK' "$scratch/compile.log"
    passed=$((passed + $(grep -c 'test OK' "$scratch/compile.log")))
    rm -r "$scratch/mnt/zlib" "$scratch/mnt/installed"
    closed mnt
}
