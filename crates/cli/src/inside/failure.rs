//! Why a question about a pool's files had no answer: in the same words, whichever way was asked.

use std::path::{Path, PathBuf};

use nearside::Error as PoolError;
use nearside::files::Error as FsError;

/// Longest path that a call takes.
const PATH_BYTES_MAX: usize = 4095;

/// Why a question about a pool's files had no answer.
#[derive(Debug)]
pub struct Failure {
    /// The errno of it.
    pub errno: i32,
    /// The path that it is about, if it is about one.
    pub path: Option<PathBuf>,
    /// What is wrong, and what to do.
    pub what: String,
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        let errno = error.errno();
        match error {
            PoolError::Path { path, source } => {
                Failure { errno, path: Some(path), what: source.to_string() }
            }
            error => Failure { errno, path: None, what: error.to_string() },
        }
    }
}

impl Failure {
    /// What the kernel said of `path` in a mounted pool, in the engine's words where it has some.
    pub fn of_kernel(path: &Path, error: std::io::Error) -> Failure {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let what = match errno {
            libc::ENAMETOOLONG if path.as_os_str().len() > PATH_BYTES_MAX => {
                PoolError::PathTooLong.to_string()
            }
            _ => words(errno).unwrap_or_else(|| error.to_string()),
        };
        Failure { errno, path: Some(path.to_path_buf()), what }
    }

    /// An error of the engine's own about `path`.
    pub fn of_engine(path: &Path, error: &FsError) -> Failure {
        let path = Some(path.to_path_buf());
        Failure { errno: error.errno(), path, what: error.to_string() }
    }
}

fn words(errno: i32) -> Option<String> {
    let error = match errno {
        libc::ENOENT => FsError::NotFound,
        libc::EEXIST => FsError::Exists,
        libc::ENOTDIR => FsError::NotDirectory,
        libc::EISDIR => FsError::IsDirectory,
        libc::ENOTEMPTY => FsError::NotEmpty,
        libc::ENAMETOOLONG => FsError::NameTooLong,
        libc::EFBIG => FsError::TooBig,
        libc::ENOSPC => FsError::NoSpace,
        libc::EMLINK => FsError::TooManyLinks,
        libc::ENODATA => FsError::NoAttribute,
        libc::EROFS => FsError::ReadOnly,
        libc::ELOOP => return Some(PoolError::Loop("".into()).to_string().split_off(2)),
        libc::EACCES => {
            let text = "permission denied by the mode of the file, or of a directory above it";
            return Some(text.to_owned());
        }
        libc::EXDEV => {
            return Some("another file system is mounted there; go there without the pool".into());
        }
        libc::ENOTCONN | libc::ECONNABORTED => {
            return Some("the server of this mount has died; unmount (nearside umount DIR)".into());
        }
        _ => return None,
    };
    Some(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_speak_the_same_words() {
        let path = Path::new("/a");
        for (errno, error) in [
            (libc::ENOENT, FsError::NotFound),
            (libc::EEXIST, FsError::Exists),
            (libc::ENOTEMPTY, FsError::NotEmpty),
            (libc::ENOSPC, FsError::NoSpace),
            (libc::EROFS, FsError::ReadOnly),
        ] {
            let engine = Failure::from(PoolError::Path { path: path.into(), source: error });
            let kernel = Failure::of_kernel(path, std::io::Error::from_raw_os_error(errno));
            assert_eq!(engine.what, kernel.what);
            assert_eq!((engine.errno, kernel.errno), (errno, errno));
        }
        let looping = Failure::of_kernel(path, std::io::Error::from_raw_os_error(libc::ELOOP));
        let long = PathBuf::from("a/".repeat(3000));
        let long = Failure::of_kernel(&long, std::io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        assert_eq!(long.what, PoolError::PathTooLong.to_string());
        assert!(looping.what.starts_with("over 40 symbolic links"), "{}", looping.what);
    }
}
