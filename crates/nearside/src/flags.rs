//! How a file is to be opened.

use fs::{Access, Error as FsError};

/// How [`Pool::open_file`](crate::Pool::open_file) opens a file; works like
/// [`std::fs::OpenOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) mode: u16,
}

impl Default for OpenFlags {
    fn default() -> OpenFlags {
        OpenFlags::new()
    }
}

impl OpenFlags {
    /// Nothing allowed yet; permission bits of a new file are `0644`.
    pub fn new() -> OpenFlags {
        OpenFlags {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
        }
    }

    /// Allow reads.
    pub fn read(mut self, yes: bool) -> OpenFlags {
        self.read = yes;
        self
    }

    /// Allow writes at any offset.
    pub fn write(mut self, yes: bool) -> OpenFlags {
        self.write = yes;
        self
    }

    /// Allow writes at the end of the file, where [`File::append`](crate::File::append) puts them.
    pub fn append(mut self, yes: bool) -> OpenFlags {
        self.append = yes;
        self
    }

    /// Empty the file; needs `write`.
    pub fn truncate(mut self, yes: bool) -> OpenFlags {
        self.truncate = yes;
        self
    }

    /// Make the file if it is not there; needs `write` or `append`.
    pub fn create(mut self, yes: bool) -> OpenFlags {
        self.create = yes;
        self
    }

    /// Make the file and fail if the name exists, also when it is a symbolic link that leads
    /// nowhere; needs `write` or `append`.
    pub fn create_new(mut self, yes: bool) -> OpenFlags {
        self.create_new = yes;
        self
    }

    /// Permission bits of a file that this call makes (`07777` at most); no umask applies.
    pub fn mode(mut self, bits: u16) -> OpenFlags {
        self.mode = bits;
        self
    }

    /// Whether the file may be changed.
    pub(crate) fn changes(&self) -> bool {
        self.write || self.append
    }

    /// What the file's permissions must allow.
    pub fn access(&self) -> Access {
        match (self.read, self.changes()) {
            (true, true) => Access::READ.and(Access::WRITE),
            (false, true) => Access::WRITE,
            _ => Access::READ,
        }
    }

    /// Refuses combinations that make no sense.
    pub(crate) fn validate(&self) -> Result<(), FsError> {
        if !self.read && !self.changes() {
            return Err(FsError::Invalid("open for reading, writing or appending"));
        }
        if self.truncate && !self.write {
            return Err(FsError::Invalid("truncate needs write"));
        }
        if (self.create || self.create_new) && !self.changes() {
            return Err(FsError::Invalid("create needs write or append"));
        }
        if self.mode > 0o7777 {
            return Err(FsError::Invalid("permission bits are at most 07777"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_combinations_are_refused() {
        let refused = [
            OpenFlags::new(),
            OpenFlags::new().read(true).truncate(true),
            OpenFlags::new().append(true).truncate(true),
            OpenFlags::new().read(true).create(true),
            OpenFlags::new().read(true).create_new(true),
            OpenFlags::new().read(true).mode(0o10000),
        ];
        for flags in refused {
            assert!(flags.validate().is_err(), "{flags:?}");
        }
        assert!(OpenFlags::new().append(true).create_new(true).validate().is_ok());
        assert!(OpenFlags::new().write(true).create(true).truncate(true).validate().is_ok());
    }
}
