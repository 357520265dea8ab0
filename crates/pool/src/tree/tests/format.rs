//! The bytes as `mod.rs` draws them.

use super::{Change, Key, Root, Store, change};
use crate::tree::{BlockAddr, KEY_BYTES, PagePtr, TreeError};

#[test]
fn leaf_is_as_drawn() {
    let mut store = Store::new();
    let puts = [
        (Key::new(1, 2, 3), Change::Put(b"abc".to_vec())),
        (Key::new(0x0102, 4, 0x0506), Change::Put(b"de".to_vec())),
    ];
    let root = change(&mut store, &Root::EMPTY, &puts, &[]);
    let page = *store.page_mut(root.page.addr).unwrap();
    assert_eq!(page[..10], *b"NSTP\x01\x00\x02\x00\x4b\x00");
    assert_eq!(page[10..32], [0; 22]);
    assert_eq!(page[32..51], *b"\0\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03\x49\0");
    assert_eq!(page[51..70], *b"\0\0\0\0\0\0\x01\x02\x04\0\0\0\0\0\0\x05\x06\x4b\0");
    assert_eq!(page[70..75], *b"abcde");
    assert_eq!(page[75..], [0; 4096 - 75]);
}

#[test]
fn keys_order_as_their_bytes() {
    let keys = [
        Key::MIN,
        Key::new(0, 0, u64::MAX),
        Key::new(0, 1, 0),
        Key::new(1, 0, 255),
        Key::new(1, 0, 256),
        Key::new(256, 0, 0),
        Key::MAX,
    ];
    assert!(keys.is_sorted());
    assert!(keys.iter().map(Key::encode).is_sorted());
    keys.iter().for_each(|key| assert_eq!(Key::decode(&key.encode()), *key));
    assert_eq!(KEY_BYTES, 17);
}

#[test]
fn pointers_come_back_and_bad_addresses_do_not() {
    let (addr, copy) = (BlockAddr::new(3, 77), BlockAddr::new(1, 88));
    let ptr = PagePtr { addr, copy, crc: 0xdead_beef };
    assert_eq!(PagePtr::decode(&ptr.encode()), Some(ptr));
    let mut bytes = ptr.encode();
    bytes[7] = 1;
    assert_eq!(PagePtr::decode(&bytes), None);
}

#[test]
fn errors_know_their_errno() {
    assert_eq!(TreeError::NoSpace.errno(), libc::ENOSPC);
    assert_eq!(TreeError::Unsorted("").errno(), libc::EINVAL);
    assert_eq!(TreeError::TooHigh(12).errno(), libc::EIO);
}
