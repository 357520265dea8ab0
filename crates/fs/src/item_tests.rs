//! Tests of the items.

use crate::item::*;
use crate::item_decode::decode;
use crate::request::RequestId;
use crate::types::Ino;
use pool::{BlockAddr, KIND_CHANGE, RecordBuffer};
use smallvec::smallvec;

#[test]
fn all_items_round_trip_in_one_record() {
    let mut record = RecordBuffer::new(KIND_CHANGE, 0);
    let one = Placed { addr: BlockAddr::new(1, 77), crc: 5 };
    let two = Placed { addr: BlockAddr::new(0, 78), crc: 6 };
    push_write(&mut record, Ino(9), 4, &[one], 20_000);
    push_write(&mut record, Ino(9), 6, &[two, one, two], 30_000);
    push_patch(&mut record, Ino(9), 123, b"hello", 7, 128);
    push_put(&mut record, 9, 4, 1234, b"value");
    push_delete(&mut record, 9, 4, 1235);
    push_truncate(&mut record, Ino(9), 5);
    push_punch(&mut record, Ino(9), 3, 4);
    push_touch(&mut record, Ino(1), 3, 17);
    push_drop(&mut record, Ino(8));
    push_write_inline(&mut record, Ino(9), 5, two, &[7; 4096], 30_000);
    let share = Share { ino: Ino(9), block: 2, blocks: 70_000, end: 9000, from: Ino(7), first: 8 };
    push_share(&mut record, &share);
    let runs = vec![
        BlockRun { block: 7, addr: BlockAddr::new(2, 5), blocks: 100 },
        BlockRun { block: 200, addr: BlockAddr::new(0, 1), blocks: 1 },
    ];
    push_reserve(&mut record, Ino(6), &runs);
    let before = record.payload_len();
    let id = RequestId { client: 0x0123_4567_89AB_CDEF_0011_2233_4455_6677, sequence: 8 };
    push_request(&mut record, id, Some(9));
    assert_eq!(record.payload_len() - before, REQUEST_BYTES);
    push_request(&mut record, id, None);
    let sealed = record.seal(1, 0, 64).to_vec();
    let items = decode(&sealed[24..]).expect("just encoded");
    assert_eq!(items.len(), 14);
    let blocks = smallvec![two, one, two];
    assert_eq!(items[1], Item::Write { ino: Ino(9), block: 6, placed: blocks, end: 30_000 });
    let data = b"hello".to_vec();
    assert_eq!(items[2], Item::Patch { ino: Ino(9), offset: 123, data, crc: 7, end: 128 });
    let value = b"value".to_vec();
    assert_eq!(items[3], Item::Put { object: 9, kind: 4, index: 1234, value });
    assert_eq!(items[7], Item::Touch { ino: Ino(1), links: 3, entries: 17 });
    assert_eq!(items[8], Item::Drop { ino: Ino(8) });
    let (placed, data) = (two, vec![7; 4096]);
    let inline = Item::Inline { ino: Ino(9), block: 5, placed, data, end: 30_000 };
    assert_eq!(items[9], inline);
    let client = id.client.to_le_bytes();
    assert_eq!(items[10], Item::Share(share));
    assert_eq!(items[11], Item::Reserve { ino: Ino(6), runs });
    assert_eq!(items[12], Item::Request { client, sequence: 8, answer: Some(9) });
    assert_eq!(items[13], Item::Request { client, sequence: 8, answer: None });
}

#[test]
fn a_single_block_write_fits_one_line() {
    let mut record = RecordBuffer::new(KIND_CHANGE, 0);
    let one = Placed { addr: BlockAddr::new(1, 77), crc: 5 };
    push_write(&mut record, Ino(9), 4, &[one], 20_000);
    assert_eq!(record.sealed_len(64), WRITE_ONE_RECORD_BYTES);
}

#[test]
fn cut_items_are_no_items() {
    assert_eq!(decode(&[1, 0, 0, 0, 0, 0, 0, 0, 9]), None);
    assert_eq!(decode(&[200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(decode(&[0; 40]), Some(Items::new()));
}
