//! Who is at the other end of a Unix socket: what the kernel knew when it was connected; and what
//! he may not send.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{Error, Result};

/// Most groups that a process can have (Linux's NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;
/// Groups that nearly every process has room for.
const GROUPS_USUAL: usize = 64;

/// The supplementary groups of the peer.
pub fn peer_groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS_USUAL];
    loop {
        let mut bytes = size_of_val(&*groups) as libc::socklen_t;
        // SAFETY: the kernel writes `bytes` bytes at most, which `groups` has, and says how many.
        let failed = unsafe {
            let to = groups.as_mut_ptr().cast();
            let socket = socket.as_raw_fd();
            libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &mut bytes)
        };
        if failed == 0 {
            groups.truncate(bytes as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ERANGE) if groups.len() < GROUPS_MAX => groups.resize(GROUPS_MAX, 0),
            _ => return Err(Error::io("SO_PEERGROUPS", error)),
        }
    }
}

/// `SO_PASSRIGHTS`, which libc does not name yet.
const PASS_RIGHTS: libc::c_int = 83;

/// From now on nobody can send descriptors to this socket, nor to those that are accepted from it:
/// who sends them is told EPERM. Whoever gets descriptors has to close them, and that may wait for
/// as long as their sender likes (a socket that lingers, a file of his own file system). False: the
/// kernel cannot do so; it can from Linux 6.16 on.
///
/// # Errors
/// It is no Unix socket.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> Result<bool> {
    let no: libc::c_int = 0;
    // SAFETY: the kernel reads as many bytes as an integer has.
    let failed = unsafe {
        let (socket, size) = (socket.as_raw_fd(), size_of_val(&no) as libc::socklen_t);
        let from = std::ptr::from_ref(&no).cast();
        libc::setsockopt(socket, libc::SOL_SOCKET, PASS_RIGHTS, from, size)
    };
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        _ if failed == 0 => Ok(true),
        Some(libc::ENOPROTOOPT) => Ok(false),
        _ => Err(Error::io("SO_PASSRIGHTS", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_peers_groups_are_those_that_the_kernel_lists() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut groups = peer_groups(one.as_fd()).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut listed: Vec<u32> =
            line.split_whitespace().map(|group| group.parse().unwrap()).collect();
        groups.sort_unstable();
        listed.sort_unstable();
        assert_eq!(groups, listed);
    }
}
