//! Programs that ask much of a file system, over a network, while the service is killed over and
//! over: none sees more than a delay.

use super::Remote;
use crate::programs::{GIT, SQLITE};
use crate::support::has;

#[test]
fn git_keeps_a_history() {
    if !has("git") {
        return;
    }
    let Some(remote) = Remote::mounted() else { return };
    remote.scratch.sh_while_servers_die(GIT);
    remote.finish();
}

#[test]
fn sqlite_keeps_its_tables_in_wal_and_rollback_mode() {
    if !has("sqlite3") {
        return;
    }
    let Some(remote) = Remote::mounted() else { return };
    remote.scratch.sh_while_servers_die(SQLITE);
    remote.finish();
}
