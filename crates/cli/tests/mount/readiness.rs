//! When a keeper has the ready message of its server. It counts from then on how long the server
//! serves, and gives a mount up whose servers die too early too often.

use nix::unistd::Pid;

/// Whether the keeper of this server has logged its ready message; server and keeper share a log.
/// A server may answer calls before that: the keeper reads the message when it gets a CPU.
pub fn is_ready(server: Pid) -> bool {
    let log = std::fs::read_to_string(format!("/proc/{server}/fd/2")).unwrap_or_default();
    let words = format!("server ready process={server}");
    log.lines().any(|line| line.ends_with(&words))
}
