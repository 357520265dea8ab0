use super::*;
use crate::keys::ino_of;
use std::collections::BTreeSet;

#[test]
fn layouts_round_trip_as_text_and_as_stored() {
    let all = [Layout::Auto, Layout::Near, Layout::Stripe, Layout::Node(0), Layout::Node(u16::MAX)];
    for layout in all {
        assert_eq!(layout.to_string().parse::<Layout>().unwrap(), layout);
        assert_eq!(Layout::from_code(layout.code()), Some(layout));
    }
    for text in ["", "Near", "node", "node:", "node:-1", "node:65536", "node:1 ", "stripe:2"] {
        assert!(text.parse::<Layout>().is_err(), "{text:?}");
    }
    // an unknown kind, a node where there is none, a node that is too large
    for code in [4, 255, NEAR | 1 << 8, STRIPE | 5 << 8, 1 << 8, NODE | 1 << 24] {
        assert_eq!(Layout::from_code(code), None, "{code:#x}");
    }
}

#[test]
fn as_many_stripes_as_slices_take_in_each_slice_once() {
    for slices in [1, 2, 3, 4, 6, 7, 8, 12, 255] {
        let stripes = Stripes::new(64, slices);
        for counter in 0..40 {
            let ino = ino_of((counter % slices) as u8, counter);
            for from in [0, 1, 1000, 1 << 30] {
                let row = (from..from + slices).map(|stripe| stripes.slice(ino, 5, stripe * 64));
                assert_eq!(row.collect::<BTreeSet<_>>().len() as u64, slices, "{slices} {counter}");
            }
        }
    }
}

#[test]
fn a_stripe_lies_on_one_slice() {
    let stripes = Stripes::new(16, 4);
    assert_eq!(stripes.bytes(), 64 << 10);
    for counter in 0..9 {
        let ino = ino_of(1, counter);
        for stripe in 0..9u64 {
            let slice = stripes.slice(ino, 1, stripe * 16);
            assert!((0..16).all(|block| stripes.slice(ino, 1, stripe * 16 + block) == slice));
        }
    }
}

/// Files of one writer do not go the same way: what two of them have second lies apart.
#[test]
fn files_differ_in_the_order_of_slices() {
    let stripes = Stripes::new(64, 8);
    let second = (0..16).map(|counter| stripes.slice(ino_of(0, counter), 0, 64));
    assert!(second.collect::<BTreeSet<_>>().len() >= 4);
}
