//! Which medium a mapping is of: a copy of a file, a snapshot, or a disk that was taken away and
//! came back is another one, and has what was synced, at least; what only the page cache had it may
//! lack. What was put into the file itself meanwhile is not noticed.

use crate::mapping::Mapping;
use crate::open::file_system_type;
use crate::sysfs::Sysfs;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// File systems that may give a file another inode number while they are mounted: msdos and vfat,
/// exfat, SMB, and those in user space.
const NUMBERS_CHANGE: [libc::c_long; 5] =
    [0x4d44, 0x2011_bab0, 0xff53_4d42_u32 as _, 0xfe53_4d42_u32 as _, 0x6573_5546];

impl Mapping {
    /// A number of the file, its birth, the device that it is on, and how often a disk came to that
    /// place (`diskseq`, from Linux 5.15 on); 2 or more. `None`: the memory is of no file, or of
    /// one that cannot be told from others.
    pub fn medium_id(&self) -> Option<u32> {
        medium_id(self.file.as_ref()?, &Sysfs::default())
    }
}

fn medium_id(file: &File, sysfs: &Sysfs) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let kind = metadata.file_type();
    let is_device = kind.is_block_device() || kind.is_char_device();
    let changes = |kind| NUMBERS_CHANGE.contains(&kind);
    if !is_device && file_system_type(file, Path::new("")).map_or(true, changes) {
        return None;
    }
    // an inode's number is given out again when its file has gone
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos() as u64);
    // the number of a device says which it is, wherever its file lies
    let (device, inode, born) = match is_device {
        true => (metadata.rdev(), 0, 0),
        false => (metadata.dev(), metadata.ino(), born),
    };
    let disk = match kind.is_char_device() {
        true => 0,
        // where sysfs is not to be seen, another process may see it
        false => sysfs.disk_sequence(device)?,
    };
    let words = [device, inode, born, disk];
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
        let id = |file: &File| medium_id(file, &Sysfs { root: root.path().to_owned() });
        assert_eq!(id(&file), None, "no sysfs");
        let disk = root.path().join("sys/dev/block").join(name);
        std::fs::create_dir_all(disk.parent().unwrap()).unwrap();
        let first = id(&file).unwrap();
        assert_ne!(first, id(&File::open(path("two")).unwrap()).unwrap());
        std::fs::create_dir_all(&disk).unwrap();
        std::fs::write(disk.join("diskseq"), "7\n").unwrap();
        let seventh = id(&file).unwrap();
        assert_ne!(first, seventh);
        std::fs::rename(path("one"), path("three")).unwrap();
        assert_eq!(Some(seventh), id(&File::open(path("three")).unwrap()));
        std::fs::write(disk.join("diskseq"), "8\n").unwrap();
        assert_ne!(Some(seventh), id(&file));
        // of a partition the disk says it
        std::fs::rename(disk.join("diskseq"), root.path().join("sys/dev/block/diskseq")).unwrap();
        assert!(![Some(first), Some(seventh), None].contains(&id(&file)));
    }

    /// A copy that takes the place of a file may get its inode number.
    #[test]
    fn a_file_in_the_place_of_another_is_another_medium() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let mut ids = Vec::new();
        for _ in 0..20 {
            std::fs::write(&path, b"bytes").unwrap();
            ids.push(medium_id(&File::open(&path).unwrap(), &Sysfs::default()).unwrap());
            std::fs::remove_file(&path).unwrap();
            // births have the clock's grain
            std::thread::sleep(std::time::Duration::from_millis(12));
        }
        let made = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), made);
    }
}
