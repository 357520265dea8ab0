//! What tests of forked children share.

/// What a forked child does, which ends well, and within a minute.
#[track_caller]
pub fn in_child(act: impl FnOnce()) {
    // SAFETY: the child calls what is under test here, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a signal at most; and it ends without any of what its parent has to do.
        unsafe {
            libc::alarm(60);
            let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            libc::_exit(i32::from(acted.is_err()));
        }
    }
    let mut status = 0;
    // SAFETY: a child of this process, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}
