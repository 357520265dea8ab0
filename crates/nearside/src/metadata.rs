//! What a file is, as [`std::fs::Metadata`] would say it.

use std::time::SystemTime;

use fs::{Attr, FileKind};

/// The attributes of a file, directory or link at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

impl From<Attr> for Metadata {
    /// What another door than this library said of a file.
    fn from(attr: Attr) -> Metadata {
        Metadata(attr)
    }
}

impl Metadata {
    /// All attributes, in the engine's own form.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.0.kind
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == FileKind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind == FileKind::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileKind::Symlink
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Inode number, never used twice in a pool.
    pub fn ino(&self) -> u64 {
        self.0.ino.0
    }

    /// Permission bits (`07777` at most).
    pub fn mode(&self) -> u16 {
        self.0.mode
    }

    /// Number of hard links.
    pub fn links(&self) -> u32 {
        self.0.links
    }

    /// Time of the last change of content.
    pub fn modified(&self) -> SystemTime {
        self.0.modified.to_system_time()
    }

    /// Time of the last read.
    pub fn accessed(&self) -> SystemTime {
        self.0.accessed.to_system_time()
    }

    /// Time of creation.
    pub fn created(&self) -> SystemTime {
        self.0.created.to_system_time()
    }
}
