//! Programs that ask much of a file system, while its server is killed over and over: none sees
//! more than a delay.

use crate::support::{Scratch, has};

/// A repository of three of this project's crates at `$SOURCE`, of all where `NEARSIDE_TESTS` is
/// `long`: changed, collected, cloned.
pub const GIT: &str = concat!(
    "SOURCE='",
    env!("CARGO_MANIFEST_DIR"),
    "/..'",
    r#"
        git config --global user.name T; git config --global user.email t@example.org
        git config --global init.defaultBranch main
        git init -q repo; cd repo; mkdir src
        crates="cli fs pool"; test "${NEARSIDE_TESTS-}" != long || crates="$(ls "$SOURCE")"
        for crate in $crates; do cp -r "$SOURCE/$crate" src; done
        git add -A; git commit -qm first; test -z "$(git status --porcelain)"
        echo change >> src/cli/Cargo.toml; git mv src/fs src/files
        test "$(git status --porcelain | wc -l)" -gt 1
        git commit -qam second; git gc -q --aggressive; git fsck --full --strict
        git checkout -q HEAD~1; test -d src/fs; git checkout -q main; test -d src/files
        git clone -q . ../clone; cd ../clone; git fsck --full; test -z "$(git status --porcelain)"
    "#
);

/// Two writers of a database, in each way in which it keeps a journal.
pub const SQLITE: &str = r#"
        for mode in wal delete truncate; do
            sqlite3 $mode.db "pragma journal_mode=$mode; create table t(i integer, x blob);"
            writer() {
                n=0; while [ $n -lt 40 ]; do
                    n=$((n + 1)); echo "insert into t values($n, randomblob(3000));"
                done | sqlite3 -cmd ".timeout 60000" $mode.db
            }
            writer & writer & wait
            test "$(sqlite3 $mode.db 'select count(*) from t')" = 80
            test "$(sqlite3 $mode.db 'pragma integrity_check')" = ok
            sqlite3 $mode.db "delete from t where i % 3 = 0; vacuum"
            test "$(sqlite3 $mode.db 'pragma integrity_check')" = ok
        done
    "#;

#[test]
fn git_keeps_a_history() {
    if !has("git") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh_while_servers_die(GIT);
    scratch.finish();
}

#[test]
fn sqlite_keeps_its_tables_in_wal_and_rollback_mode() {
    if !has("sqlite3") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh_while_servers_die(SQLITE);
    scratch.finish();
}

#[test]
fn appends_of_several_processes_all_arrive() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        appender() { n=0; while [ $n -lt 500 ]; do n=$((n + 1)); echo "$1 line $n" >> log; done; }
        appender a & appender b & appender c & wait
        test "$(wc -l < log)" = 1500
        for who in a b c; do
            grep "^$who" log > got; seq -f "$who line %.0f" 1 500 > want; cmp got want
        done
    "#);
    scratch.finish();
}

#[test]
fn a_program_is_compiled_and_run() {
    if !has("cc") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh_while_servers_die(
        r#"
        printf '#include <stdio.h>\nint main(void) { puts("built here"); return 0; }\n' > p.c
        cc -O1 -o p p.c; test "$(./p)" = "built here"; cp p q; test "$(./q)" = "built here"
    "#,
    );
    scratch.finish();
}
