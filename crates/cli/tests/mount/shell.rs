//! What people do in a shell.

use crate::support::Scratch;

#[test]
fn files_and_directories_behave() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        mkdir a a/b; echo hello > a/b/f; test "$(cat a/b/f)" = hello
        ln a/b/f hard; test "$(stat -c %h hard)" = 2; rm a/b/f
        test "$(stat -c %h hard)" = 1; test "$(cat hard)" = hello
        ln -s hard soft; test "$(readlink soft)" = hard; test "$(cat soft)" = hello
        chmod 640 hard; test "$(stat -c %a hard)" = 640
        chown 12:34 hard; test "$(stat -c %u:%g hard)" = 12:34
        touch -d '2001-02-03 04:05:06.789 UTC' hard
        test "$(TZ=UTC stat -c %y hard)" = "2001-02-03 04:05:06.789000000 +0000"
        mv hard a/b/moved; test "$(cat a/b/moved)" = hello
        mkdir other; mv a other/; test "$(cat other/a/b/moved)" = hello
        echo more >> other/a/b/moved; test "$(wc -l < other/a/b/moved)" = 2
        mkfifo pipe; test -p pipe
        ! mkdir other 2>/dev/null; ! rmdir other 2>/dev/null; ! cat nothing 2>/dev/null
        ! cat other 2>/dev/null
        rm -r other soft pipe; test -z "$(ls -A)"
    "#);
    scratch.finish();
}

#[test]
fn content_survives_copies_cuts_and_holes() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        dd if=/dev/urandom of="$OUTSIDE/ref" bs=1M count=9 status=none
        cp "$OUTSIDE/ref" copy; cmp "$OUTSIDE/ref" copy
        cp copy again; cmp copy again
        for at in 0 1 4095 4096 70000 3000001; do
            dd if=/dev/zero of=copy bs=1 count=5000 seek=$at conv=notrunc status=none
            dd if=/dev/zero of="$OUTSIDE/ref" bs=1 count=5000 seek=$at conv=notrunc status=none
        done
        cmp "$OUTSIDE/ref" copy
        truncate -s 5000001 copy "$OUTSIDE/ref"; cmp "$OUTSIDE/ref" copy
        truncate -s 7000001 copy "$OUTSIDE/ref"; cmp "$OUTSIDE/ref" copy
        truncate -s 1T huge; test "$(stat -c %s huge)" = 1099511627776
        test "$(stat -c %b huge)" -lt 1000
        echo end >> huge; test "$(tail -c 4 huge)" = end
        dd if=again of=odd bs=777 status=none; cmp again odd
        dd if=again of=direct bs=1M oflag=direct iflag=direct status=none; cmp again direct
        : > copy; test ! -s copy
    "#);
    scratch.finish();
}

#[test]
fn trees_are_copied_found_and_removed() {
    let Some(scratch) = Scratch::mounted() else { return };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    scratch.sh(&format!(
        r#"
        cp -r "{source}" tree; diff -r "{source}" tree
        find tree -type f | wc -l > "$OUTSIDE/count"
        test "$(find "{source}" -type f | wc -l)" = "$(cat "$OUTSIDE/count")"
        tar cf "$OUTSIDE/t.tar" tree; mkdir out; tar xf "$OUTSIDE/t.tar" -C out
        diff -r tree out/tree
        rm -r tree out; test -z "$(ls -A)"
    "#
    ));
    scratch.finish();
}

/// A directory that is listed while its entries go is the case that cookies are for.
#[test]
fn a_large_directory_lists_every_entry_once() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        mkdir many; cd many
        seq 1 5000 | xargs touch
        test "$(ls | sort -n | uniq | wc -l)" = 5000
        test "$(find . -type f | wc -l)" = 5000
        seq 1 2 5000 | xargs rm
        test "$(ls | wc -l)" = 2500
        cd ..; rm -r many; test -z "$(ls -A)"
    "#);
    scratch.finish();
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        echo alive > f; exec 3<>f; rm f; test ! -e f
        test "$(cat <&3)" = alive; echo more >&3; test "$(cat /proc/self/fd/3)" = "alive
more"
        echo new > f; test "$(cat f)" = new; exec 3>&-
    "#);
    scratch.finish();
}

#[test]
fn everything_is_there_after_a_remount() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh(r#"
        mkdir -p deep/er/est; seq 1 20000 > deep/er/numbers; ln -s numbers deep/er/link
        ln deep/er/numbers deep/er/est/hard; chmod 4711 deep/er/numbers
        touch -d '1969-12-31 23:59:58.8 UTC' deep; cp -a deep "$OUTSIDE/"
    "#);
    let look = "find . -printf '%p %y %m %n %s %l %T@\n' | grep -v '^. ' | sort";
    let before = scratch.sh(look);
    scratch.umount();
    scratch.mount();
    assert_eq!(scratch.sh(look), before);
    scratch.sh(r#"diff -r deep "$OUTSIDE/deep""#);
    scratch.finish();
}

#[test]
fn a_read_only_mount_reads_and_refuses() {
    let Some(scratch) = Scratch::mounted() else { return };
    scratch.sh("echo kept > f");
    scratch.umount();
    let (pool, mnt) = (scratch.pool(), scratch.mnt());
    scratch.run_ok(["mount".as_ref(), pool.as_os_str(), mnt.as_os_str(), "--read-only".as_ref()]);
    scratch.sh(r#"
        test "$(cat f)" = kept
        ! (echo x > g) 2>"$OUTSIDE/said"; grep -q "Read-only" "$OUTSIDE/said"
        ! rm f 2>/dev/null; ! mkdir d 2>/dev/null; ! chmod 600 f 2>/dev/null
    "#);
    scratch.finish();
}
