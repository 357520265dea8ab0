//! Calls that meet others.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::calls::open;
use crate::support::Scratch;

/// A name is looked up in one request and used in another, and stands for another file by then.
#[test]
fn a_file_that_is_replaced_over_and_over_can_be_used_at_any_time() {
    let Some(scratch) = Scratch::mounted() else { return };
    let name = scratch.mnt().join("name");
    let replace = |new: &Path| {
        std::fs::write(new, "content").unwrap();
        std::fs::rename(new, &name).unwrap();
    };
    replace(&scratch.mnt().join("first"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for use_it in [
            |name: &Path| assert_eq!(std::fs::read(name).unwrap(), b"content"),
            |name: &Path| assert_eq!(open(name).metadata().unwrap().len(), 7),
            |name: &Path| std::fs::set_permissions(name, PermissionsExt::from_mode(0o600)).unwrap(),
        ] {
            let (name, is_over) = (&name, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    use_it(name);
                }
            });
        }
        let new = scratch.mnt().join("new");
        (0..2000).for_each(|_| replace(&new));
        is_over.store(true, Ordering::Relaxed);
    });
    scratch.finish();
}
