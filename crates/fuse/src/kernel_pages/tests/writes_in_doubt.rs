//! Writes through pages that may lack them: what is stored there later is a store all the same.

use nearside::files::SetAttr;

use super::{BLOCK, Way, scratch_of};

/// What was there before the write could not be told from what a mapping stores of it.
#[test]
fn a_write_through_pages_in_doubt_returns_when_they_are_gone() {
    let scratch = scratch_of(false, 2);
    scratch.other_writes(100, b"one");
    scratch.held.drop_pages(|| ());
    let mut pages = scratch.fill()[..BLOCK].to_vec();
    // the pages have what was there before
    scratch.waits_for_drop(&pages, || scratch.writes_through(50, &[b'w'; BLOCK]));
    assert!(scratch.content()[50..50 + BLOCK] == [b'w'; BLOCK]);
    pages = scratch.fill()[..BLOCK].to_vec();
    pages[60] = b'a';
    scratch.write_back(0, &pages);
    assert_eq!(&scratch.content()[59..62], b"waw");
    // a server that was killed had made the write
    scratch.other_writes(100, b"two");
    scratch.waits_for_drop(&pages, || scratch.kernel.came_back(&scratch.handle, 50, b"back"));
    scratch.close();
}

#[test]
fn a_write_where_the_kernel_may_have_made_zeros_returns_when_they_are_gone() {
    let scratch = scratch_of(false, 2);
    let mut pages = scratch.fill()[..BLOCK].to_vec();
    scratch.cut(1000);
    pages[998..1000].fill(b'w');
    pages[1000..].fill(0);
    scratch.waits_for_drop(&pages, || scratch.writes_through(998, b"www"));
    assert_eq!(&scratch.content()[997..], b"awww");
    pages = scratch.fill();
    pages[1000] = 0;
    scratch.write_back(0, &pages[..1001]);
    assert_eq!(&scratch.content()[997..], b"aww\0");
    scratch.close();
}

/// A kernel that cuts a file writes nothing through its pages meanwhile.
#[test]
fn a_cut_by_the_kernel_itself_ends_doubt() {
    let scratch = scratch_of(true, 2);
    scratch.kernel.writes_past(&scratch.handle);
    scratch.held.drop_pages(|| ());
    scratch.fill();
    let change = SetAttr { size: Some(5000), ..SetAttr::default() };
    let cut = || scratch.fs().setattr(scratch.handle.ino(), &change);
    scratch.kernel.changing(Way::Cut, cut).unwrap();
    scratch.writes_through(4990, b"through");
    assert!(scratch.held.is_idle(), "the page is as it was written");
    let mut pages = scratch.fill()[BLOCK..].to_vec();
    pages[4990 - BLOCK] = b'a';
    scratch.write_back(BLOCK, &pages[..5000 - BLOCK]);
    assert_eq!(&scratch.content()[4989..], b"aahroughaaa");
    scratch.close();
}
