//! Several users: the kernel checks what the attributes say.

use crate::support::{Scratch, has};

const NOBODY: u32 = 65_534;

#[test]
fn permissions_hold_for_other_users() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        umask 022; echo secret > s; chmod 600 s; echo open > o
        mkdir d t; chmod 1777 t; echo x > t/r
    "#);
    let script = r#"
        test "$(cat o)" = open
        ! cat s 2>/dev/null; ! (echo x > o) 2>/dev/null; ! touch d/x 2>/dev/null
        touch t/mine; test "$(stat -c %u:%g t/mine)" = 65534:65534
        ! rm -f t/r 2>/dev/null; rm t/mine; umask 077; mkdir t/own; test "$(stat -c %a t/own)" = 700
        ! chown 0 t/own 2>/dev/null; ! chmod 777 d 2>/dev/null
    "#;
    let output = scratch.sh_as(Some(NOBODY), script);
    assert!(output.status.success(), "{output:?}");
    scratch.finish();
}

#[test]
fn a_set_group_id_directory_gives_its_group() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh("mkdir g; chgrp 77 g; chmod 2777 g");
    let output = scratch.sh_as(Some(NOBODY), "touch g/f; mkdir g/d; stat -c '%g %A' g/f g/d");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "77 -rw-r--r--\n77 drwxr-sr-x\n");
    scratch.finish();
}

/// The kernel leaves this to the server, so that writes need not ask for capabilities each time.
#[test]
fn set_id_bits_go_when_others_write_and_when_the_owner_changes() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        for f in w t c r; do echo x > $f; chmod 6777 $f; done
        echo y >> r; test "$(stat -c %a r)" = 6777
        chown 5 c; test "$(stat -c %a c)" = 777
    "#);
    let output = scratch.sh_as(Some(NOBODY), "echo y >> w; : > t; stat -c %a w t");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "777\n777\n");
    scratch.finish();
}
