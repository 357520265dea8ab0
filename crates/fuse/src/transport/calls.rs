//! The names under which requests are counted.

use nearside::files::Call;

use crate::wire::Operation;

pub(super) fn call(operation: &Operation<'_>) -> Call {
    match operation {
        Operation::Lookup { .. } => Call::Lookup,
        Operation::Forget { .. } | Operation::BatchForget(_) => Call::Forget,
        Operation::Getattr { .. } | Operation::Statx { .. } => Call::Getattr,
        Operation::Setattr(_) => Call::Setattr,
        Operation::Readlink => Call::Readlink,
        Operation::Mknod { .. } => Call::Mknod,
        Operation::Mkdir { .. } => Call::Mkdir,
        Operation::Symlink { .. } => Call::Symlink,
        Operation::Unlink { .. } => Call::Unlink,
        Operation::Rmdir { .. } => Call::Rmdir,
        Operation::Rename { .. } => Call::Rename,
        Operation::Link { .. } => Call::Link,
        Operation::Open { .. } => Call::Open,
        Operation::Create { .. } | Operation::Tmpfile { .. } => Call::Create,
        Operation::Read { .. } => Call::Read,
        Operation::Write { .. } => Call::Write,
        Operation::Release { .. } => Call::Release,
        Operation::Fsync { .. } | Operation::Syncfs => Call::Fsync,
        Operation::Opendir { .. } => Call::Opendir,
        Operation::Readdir { .. } => Call::Readdir,
        Operation::Readdirplus { .. } => Call::Readdirplus,
        Operation::Fsyncdir { .. } => Call::Fsyncdir,
        Operation::Releasedir { .. } => Call::Releasedir,
        Operation::Statfs => Call::Statfs,
        Operation::Setxattr { .. } => Call::Setxattr,
        Operation::Getxattr { .. } => Call::Getxattr,
        Operation::Listxattr { .. } => Call::Listxattr,
        Operation::Removexattr { .. } => Call::Removexattr,
        Operation::Fallocate { .. } => Call::Fallocate,
        Operation::Lseek { .. } => Call::Lseek,
        Operation::CopyFileRange { .. } => Call::CopyFileRange,
        Operation::Getlk(_) | Operation::Setlk { .. } => Call::Lock,
        Operation::Flush { .. } => Call::Flush,
        _ => Call::Other,
    }
}
