//! The control socket: made, found, taken away.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use wire::Place;

use crate::own_file;

const NAME: &str = "nearside.sock";
/// What it is called until it may be found.
const NAME_NEW: &str = ".nearside.sock.new";

/// The way to the pool's directory.
fn place(pool: &Path) -> io::Result<Place> {
    Place::of(pool, NAME_NEW.len())
}

/// Listens; takes the place of what a dead server left. The caller holds the server's lock, so
/// that there is no other one.
pub fn listen(pool: &Path) -> io::Result<UnixListener> {
    let place = place(pool)?;
    let (new, path) = (place.join(NAME_NEW), place.join(NAME));
    remove(&new)?;
    // Under a name of its own until its mode is right; the rename takes an old one's place.
    let listener = UnixListener::bind(&new)?;
    let settled = settle(&new, &path, &std::fs::metadata(place.path())?);
    if settled.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    settled?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn settle(new: &Path, path: &Path, dir: &std::fs::Metadata) -> io::Result<()> {
    // Root may serve the pool of another, who is to be let in.
    own_file::settle_socket(new, 0o600, Some((dir.uid(), dir.gid())))?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(no_socket()),
        _ => std::fs::rename(new, path),
    }
}

fn no_socket() -> io::Error {
    let text = "a file that is no socket has the name nearside.sock; move it away";
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// Takes the socket away.
pub fn remove_from(pool: &Path) -> io::Result<()> {
    remove(&place(pool)?.join(NAME))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Connects to the server of the pool.
pub fn connect(pool: &Path) -> io::Result<UnixStream> {
    let place = place(pool)?;
    let path = place.join(NAME);
    UnixStream::connect(&path).map_err(|error| match std::fs::symlink_metadata(&path) {
        // the kernel refuses it as it refuses the socket of a server that has died
        Ok(found) if !found.file_type().is_socket() => no_socket(),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_at_the_end_of_any_path() {
        let root = tempfile::tempdir().unwrap();
        for name in ["p".to_owned(), "long".repeat(50)] {
            let pool = root.path().join(name);
            std::fs::create_dir(&pool).unwrap();
            assert!(connect(&pool).is_err());
            // The second takes the place of the first, which is as one that died left it.
            for _ in 0..2 {
                let listener = listen(&pool).unwrap();
                let _asking = connect(&pool).unwrap();
                assert!(listener.accept().is_ok());
                let mode = std::fs::symlink_metadata(pool.join(NAME)).unwrap().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
            assert_eq!(connect(&pool).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            remove_from(&pool).unwrap();
            assert_eq!(std::fs::read_dir(&pool).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_is_no_socket_stays() {
        let pool = tempfile::tempdir().unwrap();
        std::fs::write(pool.path().join(NAME), "mine").unwrap();
        assert!(listen(pool.path()).unwrap_err().to_string().contains("no socket"));
        assert!(connect(pool.path()).unwrap_err().to_string().contains("no socket"));
        assert_eq!(std::fs::read(pool.path().join(NAME)).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(pool.path()).unwrap().count(), 1);
    }
}
