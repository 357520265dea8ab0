//! What was measured of the machine, as a pool keeps it: in one block of each slice, the newest
//! counts. It says where copies are made, and nothing that is stored follows from it; one that
//! cannot be read is as good as none.

use crate::error::Result;
use crate::pool::Pool;
use crate::superblock::BLOCK_BYTES;
use placement::{Calibration, Kind, Place, Point};
use pmem::{Mapping, crc_fits};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of it.
const MAGIC: [u8; 8] = *b"NSCALIB1";
/// Block that holds it.
pub const CALIBRATION_BLOCK: u64 = 7;
/// Measurements that there is room for.
pub const POINTS_MAX: usize = 240;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct StoredPoint {
    /// 0: out of the memory, 1: into it.
    kind: u8,
    /// 0: local, 1: remote, 2: delegated.
    place: u8,
    threads: U16,
    bytes: U32,
    /// Bytes a second.
    rate: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy, Debug)]
#[repr(C)]
struct Stored {
    magic: [u8; 8],
    nodes: U32,
    cpus: U32,
    taken: U64,
    count: U32,
    reserved: U32,
    points: [StoredPoint; POINTS_MAX],
    room: [u8; 220],
    crc: U32,
}

// docs/FORMAT.md says these
const _: () = assert!(size_of::<Stored>() == BLOCK_BYTES as usize);
const _: () = assert!(offset_of!(Stored, taken) == 16);
const _: () = assert!(offset_of!(Stored, points) == 32);
const _: () = assert!(size_of::<StoredPoint>() == 16);
const _: () = assert!(offset_of!(Stored, crc) == 4092);

const NO_POINT: StoredPoint =
    StoredPoint { kind: 0, place: 0, threads: U16::new(0), bytes: U32::new(0), rate: U64::new(0) };

impl StoredPoint {
    fn of(point: &Point) -> StoredPoint {
        StoredPoint {
            kind: u8::from(point.kind == Kind::Write),
            place: point.place as u8,
            threads: U16::new(u16::try_from(point.threads).unwrap_or(u16::MAX)),
            bytes: U32::new(u32::try_from(point.bytes).unwrap_or(u32::MAX)),
            rate: U64::new((point.rate * MIB) as u64),
        }
    }

    fn point(&self) -> Option<Point> {
        let kind = match self.kind {
            0 => Kind::Read,
            1 => Kind::Write,
            _ => return None,
        };
        let place = match self.place {
            0 => Place::Local,
            1 => Place::Remote,
            2 => Place::Delegated,
            _ => return None,
        };
        let rate = self.rate.get() as f64 / MIB;
        Some(Point {
            kind,
            place,
            bytes: u64::from(self.bytes.get()),
            threads: u32::from(self.threads.get()),
            rate,
        })
    }
}

const MIB: f64 = 1048576.0;

impl Stored {
    fn of(calibration: &Calibration) -> Stored {
        let mut points = [NO_POINT; POINTS_MAX];
        let count = calibration.points.len().min(POINTS_MAX);
        for (stored, point) in points.iter_mut().zip(&calibration.points) {
            *stored = StoredPoint::of(point);
        }
        let mut stored = Stored {
            magic: MAGIC,
            nodes: U32::new(calibration.nodes),
            cpus: U32::new(calibration.cpus),
            taken: U64::new(calibration.taken),
            count: U32::new(count as u32),
            reserved: U32::new(0),
            points,
            room: [0; 220],
            crc: U32::new(0),
        };
        stored.crc = U32::new(stored.checksum());
        stored
    }

    fn checksum(&self) -> u32 {
        pmem::crc32c(0, &self.as_bytes()[..offset_of!(Stored, crc)])
    }

    fn calibration(&self) -> Option<Calibration> {
        let is_whole = self.magic == MAGIC && crc_fits(self.checksum(), self.crc.get());
        let count = self.count.get() as usize;
        if !is_whole || count > POINTS_MAX {
            return None;
        }
        let points: Option<Vec<Point>> =
            self.points[..count].iter().map(StoredPoint::point).collect();
        Some(Calibration {
            nodes: self.nodes.get(),
            cpus: self.cpus.get(),
            taken: self.taken.get(),
            points: points?,
        })
    }
}

/// That of a slice, if it has one.
fn read(mapping: &Mapping) -> Option<Calibration> {
    let mut bytes = [0; BLOCK_BYTES as usize];
    mapping.read(CALIBRATION_BLOCK * BLOCK_BYTES, &mut bytes).ok()?;
    Stored::read_from_bytes(&bytes).ok()?.calibration()
}

impl Pool {
    /// What was measured of the machine: the newest that a slice has, wherever that was.
    pub fn stored_calibration(&self) -> Option<Calibration> {
        let all = self.slices().iter().filter_map(|slice| read(&slice.mapping));
        all.max_by_key(|calibration| calibration.taken)
    }

    /// The same, if it was measured on a machine like this one.
    pub fn calibration(&self) -> Option<Calibration> {
        self.stored_calibration().filter(|it| self.is_of_this_machine(it))
    }

    /// Whether it was measured on a machine like this one: with as many nodes and CPUs.
    pub fn is_of_this_machine(&self, calibration: &Calibration) -> bool {
        let topology = self.nodes().topology();
        let here = (topology.node_count(), topology.all_cpus().len() as u32);
        (calibration.nodes, calibration.cpus) == here
    }

    /// Says so where what was measured does not count: nothing is wrong with the pool.
    pub fn remark(&self) -> Option<String> {
        let elsewhere =
            |it: &Calibration| self.options().emulated.is_none() && !self.is_of_this_machine(it);
        let it = self.stored_calibration().filter(elsewhere)?;
        let (nodes, cpus) = (it.nodes, it.cpus);
        Some(format!(
            "it was calibrated on another machine, of {nodes} nodes and {cpus} CPUs: not used here"
        ))
    }

    /// Keeps nothing of what was measured.
    pub fn forget_calibration(&self) -> Result<()> {
        for slice in self.slices() {
            let nothing = slice.mapping.zero(CALIBRATION_BLOCK * BLOCK_BYTES, BLOCK_BYTES as usize);
            let _ = pmem::fence(nothing);
            slice.mapping.sync()?;
        }
        Ok(())
    }

    /// Keeps what was measured; it counts when the pool is opened again.
    pub fn keep_calibration(&self, calibration: &Calibration) -> Result<()> {
        // the newest counts, whatever the clock said when others were taken
        let before = self.stored_calibration().map_or(0, |it| it.taken.saturating_add(1));
        let taken = calibration.taken.max(before);
        let stored = Stored::of(&Calibration { taken, ..calibration.clone() });
        for slice in self.slices() {
            let at = CALIBRATION_BLOCK * BLOCK_BYTES;
            let _ = pmem::fence(slice.mapping.write(at, stored.as_bytes()));
            slice.mapping.sync()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Calibration {
        let point = |index: u32| Point {
            kind: if index.is_multiple_of(2) { Kind::Read } else { Kind::Write },
            place: [Place::Local, Place::Remote, Place::Delegated][index as usize % 3],
            bytes: 4096 << (index % 5),
            threads: index + 1,
            rate: f64::from(index) * 100.0 + 0.5,
        };
        Calibration { nodes: 2, cpus: 56, taken: 7, points: (0..40).map(point).collect() }
    }

    #[test]
    fn what_is_stored_comes_back() {
        let stored = Stored::of(&measured());
        assert_eq!(stored.calibration(), Some(measured()));
        let many = Calibration { points: measured().points.repeat(9), ..measured() };
        let back = Stored::of(&many).calibration().unwrap();
        assert_eq!(back.points, many.points[..POINTS_MAX]);
    }

    #[test]
    fn damage_makes_it_none() {
        let bytes = *Stored::of(&measured()).as_bytes().first_chunk::<4096>().unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 1 << (at % 8);
            assert!(Stored::read_from_bytes(&damaged).unwrap().calibration().is_none(), "{at}");
        }
        // whole, and nonsense
        let mut wrong = Stored::of(&measured());
        wrong.count = U32::new(POINTS_MAX as u32 + 1);
        wrong.crc = U32::new(wrong.checksum());
        assert!(wrong.calibration().is_none());
        let mut wrong = Stored::of(&measured());
        wrong.points[3].place = 3;
        wrong.crc = U32::new(wrong.checksum());
        assert!(wrong.calibration().is_none());
        assert!(Stored::read_from_bytes(&[0; 4096]).unwrap().calibration().is_none());
    }
}
