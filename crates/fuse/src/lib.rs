//! The mount: the engine through FUSE.
