//! What errors mean, in words.

use std::ffi::{CStr, c_char, c_int};

/// What went wrong, in words: of an answer below 0. The string is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_strerror(answer: c_int) -> *const c_char {
    words(answer.wrapping_neg()).as_ptr()
}

fn words(errno: i32) -> &'static CStr {
    match errno {
        0 => c"nothing went wrong",
        libc::EAGAIN => c"another transaction was faster, or somebody holds a lock: try it again",
        libc::EBADF => c"nothing that is open has this number, or it is not open for that",
        libc::EBUSY => c"somebody else has the pool open",
        libc::E2BIG => c"the transaction is larger than one checkpoint can fold",
        libc::EEXIST => c"the name exists",
        libc::EFAULT => c"the address is null, or not inside one region",
        libc::EFBIG => c"the file would be larger than 64 TiB",
        libc::EINVAL => c"an argument makes no sense",
        libc::EIO => c"stored bytes are damaged, or the medium fails: run nearside check",
        libc::EISDIR => c"it is a directory",
        libc::ELOOP => c"symbolic links lead on and on",
        libc::EMFILE => c"too many are open",
        libc::ENAMETOOLONG => c"the name or path is too long",
        libc::ENOENT => c"no such file or directory, or no pool there",
        libc::ENOSPC => c"the pool is full",
        libc::ENOTDIR => c"it is no directory",
        libc::ENOTEMPTY => c"the directory is not empty",
        libc::EPERM => c"not permitted: in a forked child, the pool is its parent's",
        libc::EROFS => c"the pool is read-only",
        libc::EXDEV => c"a transaction writes to files of one pool only",
        _ => c"another error; its number is an errno",
    }
}
