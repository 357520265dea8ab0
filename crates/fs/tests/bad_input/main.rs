//! What comes from outside and makes no sense: arguments, damaged and foreign images. A clear
//! error or a right result; never a panic, never a hang, never wrong data as right.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod media;
mod read_only;
#[path = "../common/values.rs"]
mod values;
