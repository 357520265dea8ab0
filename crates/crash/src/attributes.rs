//! Operations that change attributes and access control lists.

use crate::catalog::{Op, op};
use crate::world::pattern;
use fs::{Layout, Lever, NewNode, SetAttr, XattrMode};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A list with a user of its own.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 9, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255,
    255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

/// All of them.
pub fn attributes() -> Vec<Op> {
    vec![
        op!("setattr", |w| {
            let layout = Some(Layout::Stripe);
            let (move_data, move_threads) = (Some(Lever::Off), Some(Lever::Report));
            let (mode, uid) = (Some(0o600), Some(1));
            let placed = SetAttr { layout, move_data, move_threads, ..SetAttr::default() };
            let change = SetAttr { mode, uid, ..placed };
            w.fs.setattr(w.ino("/file")?, &change).map(|_| ())
        }),
        op!("setattr-size", |w| {
            let change = SetAttr { mode: Some(0o400), size: Some(77), ..SetAttr::default() };
            w.fs.setattr(w.ino("/file")?, &change).map(|_| ())
        }),
        op!("setacl", |w| w.setxattr("/file", ACCESS, &ACL)),
        op!("setacl-default", |w| w.setxattr("/dir", DEFAULT, &ACL)),
        op!("chmod-acl", |w| w.setxattr("/file", ACCESS, &ACL), |w| {
            let change = SetAttr { mode: Some(0o421), ..SetAttr::default() };
            w.fs.setattr(w.ino("/file")?, &change).map(|_| ())
        }),
        op!("create-inherits", |w| w.setxattr("/dir", DEFAULT, &ACL), |w| {
            w.make("/dir/new", NewNode::File).map(|_| ())
        }),
        op!("mkdir-inherits", |w| w.setxattr("/dir", DEFAULT, &ACL), |w| {
            w.make("/dir/new", NewNode::Directory).map(|_| ())
        }),
        op!("setxattr", |w| w.setxattr("/file", "user.new", b"value")),
        op!("setxattr-large", |w| w.setxattr("/dir", "user.big", &pattern(9, 9000))),
        op!("setxattr-replace", |w| w.setxattr("/attrs", "user.large", &pattern(9, 20))),
        op!("setxattr-grow", |w| {
            let (name, value) = (b"user.small", pattern(9, 4000));
            w.fs.setxattr(w.ino("/attrs")?, name, &value, XattrMode::Replace)
        }),
        op!("removexattr", |w| w.fs.removexattr(w.ino("/attrs")?, b"user.large")),
    ]
}
