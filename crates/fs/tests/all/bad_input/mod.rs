//! What comes from outside and makes no sense: arguments, damaged and foreign images. A clear
//! error or a right result; never a panic, never a hang, never wrong data as right.

mod calls;
mod hostile;
mod media;
mod read_only;
