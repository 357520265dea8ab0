//! Which medium a mapping is of: a copy of a file, a snapshot, or a disk that was taken away and
//! came back is another one, and has what was synced, at least; what only the page cache had it may
//! lack.

use crate::mapping::Mapping;
use crate::sysfs::Sysfs;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

impl Mapping {
    /// A number of the file, the device that it is on, and how often a disk came to that place
    /// (`diskseq`, from Linux 5.15 on); 2 or more. `None`: the memory is of no file.
    pub fn medium_id(&self) -> Option<u32> {
        medium_id(self.file.as_ref()?, &Sysfs::default())
    }
}

fn medium_id(file: &File, sysfs: &Sysfs) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let kind = metadata.file_type();
    let is_device = kind.is_block_device() || kind.is_char_device();
    // the number of a device says which it is, wherever its file lies
    let (device, inode) = match is_device {
        true => (metadata.rdev(), 0),
        false => (metadata.dev(), metadata.ino()),
    };
    let disk = (!kind.is_char_device()).then(|| sysfs.disk_sequence(device)).flatten();
    let words = [device, inode, disk.unwrap_or(0)];
    let sum = words.iter().fold(0, |sum, word| crate::crc32c(sum, &word.to_le_bytes()));
    Some(sum.max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_file_and_other_disks_are_other_media() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::write(path("one"), b"bytes").unwrap();
        std::fs::copy(path("one"), path("two")).unwrap();
        let file = File::open(path("one")).unwrap();
        let number = file.metadata().unwrap().dev();
        let name = format!("{}:{}", libc::major(number), libc::minor(number));
        let disk = root.path().join("sys/dev/block").join(name);
        let id = |file: &File| medium_id(file, &Sysfs { root: root.path().to_owned() }).unwrap();
        let first = id(&file);
        assert_ne!(first, id(&File::open(path("two")).unwrap()));
        std::fs::create_dir_all(&disk).unwrap();
        std::fs::write(disk.join("diskseq"), "7\n").unwrap();
        let seventh = id(&file);
        assert_ne!(first, seventh);
        std::fs::rename(path("one"), path("three")).unwrap();
        assert_eq!(seventh, id(&File::open(path("three")).unwrap()));
        std::fs::write(disk.join("diskseq"), "8\n").unwrap();
        assert_ne!(seventh, id(&file));
        // of a partition the disk says it
        std::fs::rename(disk.join("diskseq"), root.path().join("sys/dev/block/diskseq")).unwrap();
        assert_ne!(seventh, id(&file));
        assert_ne!(first, id(&file));
    }
}
